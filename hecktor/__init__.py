"""The command `hecktor`: one entry point, each subcommand imported only when it is called."""
