"""A shell session for the tests of this folder."""

from tests.docs.session import session as session
