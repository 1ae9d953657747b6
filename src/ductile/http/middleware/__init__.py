"""What surrounds every route: context, authentication, routing, waiting."""
