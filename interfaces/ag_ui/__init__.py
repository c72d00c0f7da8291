"""AG-UI: a session as a thread of the Agent User Interaction Protocol, a turn as a run.

Source: https://docs.ag-ui.com, protocol 1.0. The `ag-ui-protocol` package has its event models and the encoder.
"""
