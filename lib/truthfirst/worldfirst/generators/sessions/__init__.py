"""Event-log sessionisation: raw logs of three sources put in order, cut into sessions, attributed and summed up."""
