"""Print the OpenAPI document of the route table, from which the API types are generated."""

from __future__ import annotations

import json
import sys

from ductile.http.openapi import document
from ductile.http.route_table import ENDPOINTS

json.dump(document.describe_routes(ENDPOINTS), sys.stdout, indent=1)
