# A restore with hold_until keeps what it has restored in the page cache, says what was taken away, brings it back, and lets go at once
# of what is evicted on request, dropped or truncated.  Residency is counted by fincore, mappings are read in /proc.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/..";
use Time::HiRes qw(sleep time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ResidencyTest;

my $node = PostgreSQL::Test::Cluster->new('hold');
$node->init;
$node->append_conf('postgresql.conf', "shared_buffers = 1MB\nautovacuum = off\nmax_wal_size = 1GB");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency');
my $blocks = 4096;
$node->safe_psql('postgres', join('', map { wide_table($_, $blocks) } qw(held other doomed emptied sparse)) . 'CHECKPOINT');
$node->restart;    # with none of them in shared buffers

sub path
{
	return $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$_[0]')");
}

# as another process would that wants the memory: without effect on pages that are mapped
sub take_away
{
	my ($path) = @_;
	system_or_bail('dd', 'if=/dev/null', "of=$path", 'conv=notrunc', 'oflag=nocache', 'count=0', 'status=none');
	return;
}

# bytes of the files that the process has mapped and that are in memory, by the kernel
sub mapped
{
	my ($pid, $path) = @_;
	my ($bytes, $inside) = (0, 0);
	for (split /\n/, slurp_file("/proc/$pid/smaps"))
	{
		$inside = /\Q$path\E$/ if /^[0-9a-f]+-[0-9a-f]+ /;
		$bytes += 1024 * $1 if $inside && /^Rss: +(\d+) kB/;
	}
	return $bytes;
}

# one block in each 2 MiB of `sparse`, too little to be worth a page table
my $pages = 8192 / `getconf PAGESIZE`;
my $bits = ('1' x $pages . '0' x (255 * $pages)) x ($blocks / 256);
$node->safe_psql('postgres', "SELECT residency_evict('sparse'); SELECT pgfadvise_loader('sparse', 0, true, true, B'$bits')");
$node->safe_psql('postgres', "SELECT pgfadvise_willneed('$_')") for qw(held other doomed emptied);
my $few = cached($node, 'sparse');
cmp_ok($few, '<', 64, 'a snapshot with few blocks of a table');
$node->safe_psql('postgres', "SELECT residency_snapshot('warm')");
my %segment = map { $_ => $node->safe_psql('postgres', "SELECT segment_no FROM residency_snapshot_segments('warm') WHERE relfilenumber = pg_relation_filenode('$_') AND fork = 'main' AND database = (SELECT oid FROM pg_database WHERE datname = 'postgres')") }
  qw(held other doomed emptied sparse);

my $job;

sub options
{
	my ($seconds, $tables, $more) = @_;
	my $until = $node->safe_psql('postgres', "SELECT now() + '$seconds s'");
	my $list = join(',', @segment{@$tables});
	return "{\"segments\": [$list], \"hold_until\": \"$until\", \"hold_interval\": 1" . ($more // '') . '}';
}

sub begin_to_hold
{
	$job = start_restore($node, 'warm', options(@_));
	wait_for_job($node, $job, "'holding', 'failed', 'done'");
	is(job($node, $job, 'state'), 'holding', 'the job holds') or BAIL_OUT(job($node, $job, '*'));
	come_true($node, "SELECT counted_at IS NOT NULL FROM residency_jobs WHERE job = $job") or die;
	return $job;
}

# counts that have begun after this call have ended
sub await_count
{
	my ($job) = @_;
	for (1 .. 2)
	{
		my $last = job($node, $job, 'counted_at');
		come_true($node, "SELECT counted_at > '$last' FROM residency_jobs WHERE job = $job") or die job($node, $job, '*');
	}
	return;
}

# takes it away while the job is bringing it back, and little of it has come
sub catch_it
{
	my ($table) = @_;
	for (1 .. 5)
	{
		take_away(path($table));
		for (my $until = time + 60; time < $until; sleep 0.05)
		{
			my $pages = $node->safe_psql('postgres', "SELECT sum(pages_mem) FROM pgfincore('$table')");
			return if $pages >= 2 && $pages <= 16;
			last if $pages > 16;    # too late
		}
	}
	BAIL_OUT('nothing is brought back: ' . job($node, $job, '*') . ' ' . cached($node, $table));
	return;
}

sub end_hold
{
	my ($job) = @_;
	$node->safe_psql('postgres', "SELECT residency_cancel($job)");
	wait_for_job($node, $job);
	return;
}

# --- options
for ([ '"yesterday"', 'option "hold_until" must be a time within the next 7 days' ],
	[ '"infinity"', 'option "hold_until" must be a time within the next 7 days' ], [ '"-infinity"', 'must be a time within the next 7 days' ],
	[ '"2100-01-01"', 'option "hold_until" must be a time within the next 7 days' ],
	[ '17', 'option "hold_until" must be a time within the next 7 days' ], [ '"soon"', 'invalid input syntax for type timestamp with time zone: "soon"' ])
{
	my ($value, $message) = @$_;
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT residency_restore_start('warm', '{\"hold_until\": $value}')");
	like($err, qr/\Q$message\E/, "hold_until $value is refused");
}
my (undef, undef, $err) = $node->psql('postgres', q(SELECT residency_restore_start('warm', '{"hold_interval": 0}')));
like($err, qr/option "hold_interval" must be an integer between 1 and 3600/, 'so is an interval of 0');
(undef, undef, $err) = $node->psql('postgres', q(SELECT residency_restore_start('warm', '{"hold_interval": 5}')));
like($err, qr/option "hold_interval" requires option "hold_until"/, 'and one without a hold');

# --- what is held stays
$node->safe_psql('postgres', "SELECT residency_evict('held')");
$job = begin_to_hold(600, [qw(held other doomed emptied sparse)]);
my $pid = job($node, $job, 'pid');
is(job($node, $job, SUMS), 't', 'the sums of its row hold');
is(job($node, $job, 'finished_at IS NULL AND held_since <= counted_at AND hold_until > now()'), 't', 'it has not ended, and says until when');
cmp_ok(mapped($pid, path('held')), '>', 0.9 * $blocks * 8192, 'it has mapped the table');
is(mapped($pid, path('sparse')), 0, 'not the few blocks, which are not worth page tables');
my $told = job($node, $job, 'mapped_bytes');
my $seen = mapped($pid, path('held')) + mapped($pid, path('other')) + mapped($pid, path('doomed')) + mapped($pid, path('emptied'));
cmp_ok(abs($told - $seen), '<', 0.1 * $seen, 'and says how much');
take_away(path('held'));
cmp_ok(cached($node, 'held'), '>', 0.9 * $blocks, 'what another process advises to evict stays');

# --- what is taken away comes back, and is counted
my $before = job($node, $job, 'reclaimed');
kill 'STOP', $pid;    # it would bring it back
take_away(path('sparse'));
cmp_ok(cached($node, 'sparse'), '<', 0.5 * $few, 'what is not mapped can be taken away');
kill 'CONT', $pid;
await_count($job);
cmp_ok(cached($node, 'sparse'), '>=', 0.9 * $few, 'and comes back');
cmp_ok(job($node, $job, 'reclaimed') - $before, '>=', 0.5 * 16, 'the blocks are counted as reclaimed');
is(job($node, $job, 'brought_back BETWEEN reclaimed - 2 AND reclaimed'), 't', 'and as brought back') or diag(job($node, $job, '*'));
is(job($node, $job, 'reclaim_rate BETWEEN 8192 AND 60 * 8192 * reclaimed'), 't', 'with a rate') or diag(job($node, $job, '*'));
is(job($node, $job, SUMS), 't', 'the sums still hold');
like(job($node, $job, "coalesce(message, '')"), qr/^(?:most of what was brought back was reclaimed again.*)?$/,
	'it has nothing to complain of but the kernel');

# --- eviction on request
my $began = time;
is($node->safe_psql('postgres', "SELECT resident_after FROM residency_evict('held')"), 0, 'what is held can be evicted');
cmp_ok(time - $began, '<', 200, 'without a long wait');
is(cached($node, 'held'), 0, 'says fincore');
is(mapped($pid, path('held')), 0, 'it is mapped no more');
cmp_ok(job($node, $job, 'mapped_bytes'), '<=', $told - 0.9 * $blocks * 8192, 'and its bytes are told no more');
$before = job($node, $job, 'reclaimed');
await_count($job);
is(cached($node, 'held'), 0, 'and does not come back');
cmp_ok(job($node, $job, 'reclaimed') - $before, '<', 100, 'nor is it counted as reclaimed');
cmp_ok(cached($node, 'other'), '>', 0.9 * $blocks, 'the other table is still held');
# once more where the kernel was using some of the pages: like posix_fadvise, it does not try again
for (1 .. 3)
{
	$node->safe_psql('postgres', "SELECT pgfadvise_dontneed('other')");
	last if cached($node, 'other') == 0;
}
is(cached($node, 'other'), 0, "pgfincore's function evicts too");
is(mapped($pid, path('other')), 0, 'with the same effect on the mapping');

# --- a worker that does not answer is waited for once
my $parts = join '', map { "CREATE TABLE part_$_ PARTITION OF parts FOR VALUES IN ($_);" } 1 .. 20;
$node->safe_psql('postgres', "CREATE TABLE parts (a int) PARTITION BY LIST (a); $parts");
my %took;
for my $table (qw(other parts))
{
	kill 'STOP', $pid;
	$began = time;
	my (undef, undef, $told_once) = $node->psql('postgres', "SELECT resident_after FROM residency_evict('$table')");
	is(() = $told_once =~ /does not answer/g, 1, "one warning for $table") or diag($told_once);
	$took{$table} = time - $began;
	kill 'CONT', $pid;
	come_true($node, "SELECT counted_at > now() - interval '3 s' FROM residency_jobs WHERE job = $job") or die;
}
cmp_ok($took{parts}, '<', 5 * $took{other}, 'and not for each partition');

# --- dropped and truncated
my ($doomed, $emptied) = (path('doomed'), path('emptied'));
$node->safe_psql('postgres', 'DROP TABLE doomed; TRUNCATE emptied; CHECKPOINT');
await_count($job);
is(mapped($pid, $doomed) + mapped($pid, $emptied) + mapped($pid, "$doomed (deleted)") + mapped($pid, "$emptied (deleted)"), 0, 'dropped and truncated files are mapped no more');
unlike(slurp_file("/proc/$pid/maps"), qr/\Q$doomed\E/, 'nor does a mapping keep them');
is(job($node, $job, 'state'), 'holding', 'the job goes on');
cmp_ok(job($node, $job, 'reclaimed') - $before, '<', 100, 'and does not call them reclaimed');

# --- one at a time
(undef, undef, $err) = $node->psql('postgres', "SELECT residency_restore_start('warm')");
like($err, qr/job $job holds what it has restored/, 'another restore is refused');
like($err, qr/cancel it with residency_cancel\($job\)/, 'with the way out');

# --- its end
is($node->safe_psql('postgres', "SELECT residency_cancel($job)"), 't', 'it can be canceled');
wait_for_job($node, $job);
is(job($node, $job, 'state'), 'canceled', 'and then is canceled');
is(job($node, $job, SUMS), 't', 'the sums hold at the end');
is($node->safe_psql('postgres', "SELECT residency_cancel($job)"), 'f', 'only once');

$node->safe_psql('postgres', "SELECT pgfadvise_willneed('held')");
$job = begin_to_hold(12, ['held']);
$pid = job($node, $job, 'pid');
wait_for_job($node, $job);
is(job($node, $job, 'state'), 'done', 'a hold ends by itself');
is(job($node, $job, "finished_at - hold_until BETWEEN '0' AND '30 s' AND counted_at <= finished_at"), 't', 'when it should') or diag(job($node, $job, '*'));
for (my $until = time + 60; -e "/proc/$pid" && time < $until; sleep 0.1) { }
ok(!-e "/proc/$pid", 'and so does its process');

# --- a restore that outlasts its hold
$node->safe_psql('postgres', "SELECT residency_evict('other')");
$job = start_restore($node, 'warm', options(2, ['other'], ', "rate": 8388608'));
wait_for_job($node, $job);
is(job($node, $job, 'state, message'), 'done|the restore took longer than hold_until: nothing is held', 'a restore that takes longer than its hold says so');

# --- what comes back has a class, as what is restored has
$job = begin_to_hold(600, ['sparse']);
kill 'STOP', job($node, $job, 'pid');
take_away(path('sparse'));
kill 'CONT', job($node, $job, 'pid');
await_count($job);
like(job($node, $job, 'io_class'), qr/^(?:idle|normal)$/, 'the class of the requests of a hold') or diag(job($node, $job, '*'));
end_hold($job);

# --- no more than it held
take_away(path('sparse'));
$job = begin_to_hold(600, ['sparse'], ', "budget": 81920, "gap_blocks": 0, "time_limit": 5');
$before = cached($node, 'sparse');
cmp_ok($before, '<=', 12, 'a restore within a budget');
for (1 .. 3)
{
	take_away(path('sparse'));
	await_count($job);
}
cmp_ok(cached($node, 'sparse'), '<=', $before, 'what was over the budget is not brought back either') or diag(job($node, $job, '*'));
cmp_ok(cached($node, 'sparse'), '>=', 0.8 * $before, 'what was within it is');
is(job($node, $job, SUMS), 't', 'the sums hold');
come_true($node, "SELECT now() - started_at > '6 s' FROM residency_jobs WHERE job = $job") or die;
await_count($job);
is(job($node, $job, 'state'), 'holding', 'the time limit was that of the restore');

# --- taken away again and again
my $message = '';
for (my $until = time + 120; time < $until; usleep(300_000))
{
	take_away(path('sparse'));
	$message = job($node, $job, 'message');
	last if $message ne '';
}
like($message, qr/^most of what was brought back was reclaimed again; the next count is in \d+ s$/, 'it does not fight, and says so');
end_hold($job);

# --- a few blocks that are taken all the time are no fight: neither another table's, nor a small part of what is held
my $alike = $node->safe_psql('postgres', wide_table('alike', $blocks) . q(SELECT pg_relation_filepath('alike')));
$node->safe_psql('postgres', 'CHECKPOINT');
$node->restart;
$node->safe_psql('postgres', "SELECT pgfadvise_willneed('held'); SELECT pgfadvise_loader('$_', 0, true, true, B'$bits')") for qw(sparse alike);
$node->safe_psql('postgres', "SELECT residency_snapshot('few', 1, true)");
$segment{"few $_"} = $node->safe_psql('postgres', "SELECT segment_no FROM residency_snapshot_segments('few') WHERE relfilenumber = pg_relation_filenode('$_') AND fork = 'main'")
  for qw(held sparse alike);
for my $tables ([qw(sparse alike)], [qw(held sparse)])
{
	my $until = $node->safe_psql('postgres', "SELECT now() + '600 s'");
	my $list = join(',', map { $segment{"few $_"} } @$tables);
	$job = start_restore($node, 'few', "{\"segments\": [$list], \"hold_until\": \"$until\", \"hold_interval\": 1}");
	come_true($node, "SELECT counted_at IS NOT NULL FROM residency_jobs WHERE job = $job") or die job($node, $job, '*');
	my @taken = $tables->[0] eq 'held' ? ('sparse') x 2 : @$tables;
	# seven counts in vain would make the eighth wait for two minutes
	for my $n (1 .. 8)
	{
		my $last = job($node, $job, 'counted_at');
		take_away(path($taken[$n % 2]));
		come_true($node, "SELECT counted_at > '$last' FROM residency_jobs WHERE job = $job") or last;
	}
	cmp_ok(job($node, $job, 'brought_back'), '>=', 3 * 16, "@taken: it is brought back each time");
	is(job($node, $job, 'message'), '', 'which is no fight') or diag(job($node, $job, '*'));
	end_hold($job);
}

# --- a session evicts what is being brought back
$job = begin_to_hold(600, ['sparse'], ', "rate": 16384');
catch_it('sparse');
is($node->safe_psql('postgres', "SELECT resident_after FROM residency_evict('sparse')"), 0, 'what is being loaded can be evicted');
sleep 3;
is(cached($node, 'sparse'), 0, 'and does not come back');
is(job($node, $job, 'state'), 'holding', 'the job goes on');
end_hold($job);

# --- the time is over while it loads, and a cancel while it loads
for my $seconds (12, 600)
{
	$node->safe_psql('postgres', "SELECT pgfadvise_loader('sparse', 0, true, true, B'$bits')");
	$job = begin_to_hold($seconds, ['sparse'], ', "rate": 2048');    # a minute for all
	catch_it('sparse');
	if ($seconds > 12) { end_hold($job); }
	else { wait_for_job($node, $job); }
	is(job($node, $job, "finished_at - hold_until < '20 s'"), 't', 'a load does not outlast the hold') or diag(job($node, $job, '*'));
	is(job($node, $job, 'state || coalesce(message, $$$$)'), $seconds > 12 ? 'canceledcanceled by residency_cancel()' : 'done', 'with the right reason');
}

# --- out of descriptors for a while
$node->safe_psql('postgres', "SELECT pgfadvise_loader('sparse', 0, true, true, B'$bits')");
$job = begin_to_hold(600, [qw(sparse held)]);
$pid = job($node, $job, 'pid');
system_or_bail('prlimit', "--pid=$pid", '--nofile=4:');
come_true($node, "SELECT message LIKE 'could not read file \"/proc/meminfo\": %' FROM residency_jobs WHERE job = $job") or die job($node, $job, '*');
pass('an error is told');
system_or_bail('prlimit', "--pid=$pid", '--nofile=1000:');
take_away(path('sparse'));
come_true($node, "SELECT message IS NULL FROM residency_jobs WHERE job = $job") or die job($node, $job, '*');
await_count($job);
cmp_ok(cached($node, 'sparse'), '>=', 0.9 * $few, 'and is over with its cause');
end_hold($job);

# --- what is evicted while the job restores is not held
$node->safe_psql('postgres', "SELECT residency_evict('sparse'); SELECT pgfadvise_willneed('held')");
$job = start_restore($node, 'warm', options(600, [qw(held sparse)], ', "rate": 16384'));
# else the restore would load the table, at this rate for minutes
come_true($node, "SELECT segments_done >= segments - 1 FROM residency_jobs WHERE job = $job") or die job($node, $job, '*');
$node->safe_psql('postgres', "SELECT residency_evict('held')");
wait_for_job($node, $job, "'holding'");
come_true($node, "SELECT counted_at IS NOT NULL FROM residency_jobs WHERE job = $job") or die;
await_count($job);
is(cached($node, 'held'), 0, 'what is evicted while the job restores does not come back when it holds');
end_hold($job);

# --- others work during a hold, whatever the restore was allowed
$node->safe_psql('postgres', "SELECT residency_evict('held')");
$job = begin_to_hold(600, ['held'], ', "aggressive": true');
is(job($node, $job, 'window_bytes'), '524288', 'the window of a hold is the small one');
end_hold($job);

# --- the disk space of a database that is dropped
$node->safe_psql('postgres', 'CREATE DATABASE passing');
$node->safe_psql('passing', wide_table('gone', 2048) . 'CHECKPOINT');
my $passing = 'base/' . $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'passing'") . '/';
$node->restart;
$node->safe_psql('passing', 'CREATE EXTENSION pg_residency; SELECT pgfadvise_willneed($$gone$$)');
$node->safe_psql('postgres', "SELECT residency_snapshot('all', 1, true)");
$job = start_restore($node, 'all', '{"hold_interval": 3600, "hold_until": "' . $node->safe_psql('postgres', "SELECT now() + '1 h'") . '"}');
come_true($node, "SELECT counted_at IS NOT NULL FROM residency_jobs WHERE job = $job") or die job($node, $job, '*');
$pid = job($node, $job, 'pid');
like(slurp_file("/proc/$pid/maps"), qr/\Q$passing\E/, 'a table of another database is held');
$node->safe_psql('postgres', 'DROP DATABASE passing');
for (1 .. 600)
{
	last if slurp_file("/proc/$pid/maps") !~ /\Q$passing\E/;
	usleep(200_000);
}
unlike(slurp_file("/proc/$pid/maps"), qr/\Q$passing\E/, 'until the database is dropped, which frees its disk space');
$node->stop('fast');
$node->start;
is(job($node, $job, 'state'), 'interrupted', 'a shutdown interrupts a hold');
is(job($node, $job, SUMS), 't', 'and leaves sums that hold');

$node->stop;
done_testing();
