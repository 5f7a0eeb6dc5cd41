"""Applications that mount an endpoint, as docs/agents-python.md says."""

from flask import Flask
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from tests.test_servers import endpoint

starlette = Starlette(routes=[Route("/holdfast", endpoint.asgi), Mount("/below", endpoint.asgi)])

flask = Flask("tests")
flask.wsgi_app = DispatcherMiddleware(flask.wsgi_app, {"/holdfast": endpoint.wsgi})  # type: ignore[method-assign]
