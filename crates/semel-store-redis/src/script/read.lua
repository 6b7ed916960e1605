return look(now(), call('PEXPIRETIME', key))
