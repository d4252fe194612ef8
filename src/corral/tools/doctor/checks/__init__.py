"""The checks by subject; `tools.doctor.examination` has their order."""
