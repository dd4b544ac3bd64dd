"""Look into a case: CT, PET and masks in the browser, served locally or as one file."""
