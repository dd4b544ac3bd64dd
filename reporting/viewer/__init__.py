"""View a case in the browser: CT, PET and masks, served locally or as one file."""
