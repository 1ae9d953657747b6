"""Routes that show what a change would do with past jobs, and job bundles."""
