"""One check per file; `doctor.checklist` has their order."""
