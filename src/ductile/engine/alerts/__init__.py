"""Alerts of the running gateway: evaluating the rules, and pinging an outside monitor."""
