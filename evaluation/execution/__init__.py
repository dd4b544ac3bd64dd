"""Run work on cases in local processes or on a Dask cluster."""
