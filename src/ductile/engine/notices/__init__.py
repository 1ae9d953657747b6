"""Notices: from commits to subscribers."""
