"""The command `hecktor`, which imports the package of a subcommand when it is called."""
