"""Data on servers, through fsspec: listings by pages, headers by ranges, many at a time."""
