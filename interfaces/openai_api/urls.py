"""Addresses of the OpenAI-compatible API, under `/v1/`."""

from django.urls import path, re_path

from interfaces.openai_api.errors import unknown_address
from interfaces.openai_api.views import ChatCompletions, ModelDetail, ModelList

urlpatterns = [
    path("chat/completions", ChatCompletions.as_view()),
    path("models", ModelList.as_view()),
    path("models/<str:name>", ModelDetail.as_view()),
    re_path("", unknown_address),
]
