"""Pipelines and routes: parsed, compiled to a graph, and routed."""
