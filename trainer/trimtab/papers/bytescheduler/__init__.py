"""ByteScheduler (SOSP 2019) and P3 (MLSys 2019): what is needed first is sent first."""
