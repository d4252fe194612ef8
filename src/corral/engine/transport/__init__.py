"""What the operating system lends us: memory, wake-ups, messages, and a lifeline.

        parent                                              worker
    ┌────────────┐   Block      every array of the pool   ┌────────────┐
    │            │ ════════════════════════════════════── │            │
    │            │   Doorbell   "there is work", "done"   │            │
    │            │ ─────────────────────────────────────► │            │
    │            │ ◄───────────────────────────────────── │            │
    │            │   Mailbox    pickled, for rare things  │            │
    │            │ ◄────────────────────────────────────► │            │
    │            │   Lifeline   hangs up with the parent  │            │
    └────────────┘ ─────────────────────────────────────► └────────────┘

All four are nameless descriptors that a worker inherits, so nothing is left behind
however a process ends.
"""
