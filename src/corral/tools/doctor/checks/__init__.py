"""One check per file; `tools.doctor.checklist` has their order."""
