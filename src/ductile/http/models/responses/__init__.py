"""Response models, imported when the OpenAPI document is built and by the tests.

Handlers do not use them: responses are built from the ledger's rows and are compared with the
models by every HTTP test. The first line of a docstring describes the response in OpenAPI, and a
class name without `Model` is the name of the component.
"""
