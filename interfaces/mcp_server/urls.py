"""The address of the MCP server."""

from django.urls import path

from interfaces.mcp_server.view import McpView

urlpatterns = [path("", McpView.as_view(), name="mcp")]
