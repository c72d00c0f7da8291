"""`manage.py up`: one process that starts, watches and stops everything Rondo needs. No Django.

Every child dies with this process, whatever kills it. So children are started from the main thread (the
kernel ties a parent-death signal to the thread that forked), and nothing here uses threads.
"""
