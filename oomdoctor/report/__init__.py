"""Report → text; one format per file, each with a `render(report)`."""
