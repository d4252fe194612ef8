"""Scripts of the field, run with their own library and with ours."""
