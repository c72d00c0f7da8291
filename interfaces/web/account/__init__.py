"""Signing in and one's own account: links that sign in once, the sign-in page, the page of an account."""
