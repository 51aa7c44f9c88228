"""Django with Channels. `application` is one of ASGI; `wsgi_application` has no WebSockets.

    highwire-server django_app:application
"""

import json

import django
from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse, StreamingHttpResponse
from django.urls import path

# A project has these in its settings module, and its views and consumers in modules of its own.
settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="of the example", DEBUG=False)
django.setup()


async def item(request, number):
    return JsonResponse({"number": number})


def post(request):
    return JsonResponse(json.loads(request.body))


async def stream(request):
    async def parts():
        for number in range(5):
            yield f"{number},"

    return StreamingHttpResponse(parts(), content_type="text/plain")


class Upper(AsyncWebsocketConsumer):
    async def receive(self, text_data=None, bytes_data=None):
        await self.send(text_data=text_data.upper())


urlpatterns = [path("item/<int:number>", item), path("item", post), path("stream", stream)]
application = ProtocolTypeRouter(
    {"http": get_asgi_application(), "websocket": URLRouter([path("ws", Upper.as_asgi())])}
)
wsgi_application = get_wsgi_application()
