"""What answers before and around Django: limits on connections and bodies, headers, compression, measurements."""
