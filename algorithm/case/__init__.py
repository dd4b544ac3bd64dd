"""Read a case: CT, PET, dose and clinical variables from the input sockets."""
