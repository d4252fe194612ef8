"""What commands share: kinds of arguments, extras that they need, files written."""
