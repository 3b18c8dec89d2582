"""What stands behind `TripStore`: where a call goes, what is read from the mirror, what is compared, and what is known.

A call goes to the authority by the explored steps of `tripstore.handover`; everything else here may fail without its
caller hearing of it.
"""
