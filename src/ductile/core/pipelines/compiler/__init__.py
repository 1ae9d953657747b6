"""From configured pipelines to frozen graphs: parse, check, link, measure."""
