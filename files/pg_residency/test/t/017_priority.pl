# A restore reads in the idle class where the scheduler honours it, rises where it gets too little, and leaves a session's own
# priority as it was.  PG_RESIDENCY_THROTTLE and PG_RESIDENCY_DEVICE: see 011_interrupts.pl; the device has the scheduler mq-deadline.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/..";
use Time::HiRes qw(usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ResidencyTest;
use ResidencyTest qw(session begin answer ask until_true);

my ($throttle, $directory) = @ENV{qw(PG_RESIDENCY_THROTTLE PG_RESIDENCY_DEVICE)};
plan skip_all => 'no device of its own: PG_RESIDENCY_DEVICE is not set' if !defined $directory;

my $node = PostgreSQL::Test::Cluster->new('priority');
$node->init;
$node->append_conf('postgresql.conf', "shared_buffers = 1MB\nautovacuum = off\nmax_wal_size = 1GB");
$node->start;
mkdir "$directory/priority" or die "$directory/priority: $!";
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency');
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$directory/priority'");
$node->safe_psql('postgres', wide_table('wide', 16384) . 'ALTER TABLE wide SET TABLESPACE elsewhere; CHECKPOINT;');

# major:minor of the disk below a path
sub disk
{
	my $number = (stat($_[0]))[0] // die "$_[0]: $!";
	my $disk = sprintf('%d:%d', ($number >> 8) & 0xfff, ($number & 0xff) | (($number >> 12) & 0xfff00));
	$disk = slurp_file("/sys/dev/block/$disk/../dev") if -e "/sys/dev/block/$disk/partition";
	chomp $disk;
	return $disk;
}

sub scheduler
{
	my ($disk) = @_;
	return -e "/sys/dev/block/$disk/queue/scheduler" && slurp_file("/sys/dev/block/$disk/queue/scheduler") =~ /\[(.*)\]/ ? $1 : '';
}

my $disk = disk($directory);
plan skip_all => "the scheduler of $disk is not mq-deadline" if scheduler($disk) ne 'mq-deadline';

# bytes a second that are read of the device, or of another one
sub limit
{
	my ($rate, $which) = @_;
	return if !defined $throttle;
	open(my $out, '>', $throttle) or die "$throttle: $!";
	print $out $which // $disk, ' ', $throttle =~ /io\.max$/ ? 'rbps=' . ($rate // 'max') : $rate // 0, "\n";
	close($out) or die "$throttle: $!";
	return;
}
END { limit(undef) if defined $disk; }

sub make_cold
{
	for (1 .. 50)
	{
		$node->safe_psql('postgres', q(SELECT pgfadvise_dontneed('wide')));
		return if cached($node, 'wide') < 100;
		usleep(100_000);
	}
	die 'the table stays in the page cache';
}

$node->safe_psql('postgres', q(SELECT sum(rel_os_pages) FROM pgfadvise_willneed('wide')));
my $segment = q(SELECT segment_no FROM residency_snapshot_segments('warm') WHERE relfilenumber = pg_relation_filenode('wide') AND fork = 'main');
$node->safe_psql('postgres', q(SELECT residency_snapshot('warm')));
$segment = $node->safe_psql('postgres', $segment);
my $columns = 'state, io_class, scheduler, window_bytes';

make_cold();
my $job = restore($node, 'warm', "{\"segments\": [$segment]}");
is(job($node, $job, $columns), 'done|idle|mq-deadline|524288', 'a restore reads in the idle class');
cmp_ok(there($node, 'wide'), '>', 0.95 * 16384, 'and loads the table');

# What the kernel has taken meanwhile is loaded, with a class.
for (1 .. 10)
{
	$job = restore($node, 'warm', "{\"segments\": [$segment]}");
	last if job($node, $job, 'loaded') eq '0';
}
is(job($node, $job, $columns), 'done|||', 'one that has nothing to load has no class');

make_cold();
$job = restore($node, 'warm', "{\"segments\": [$segment], \"aggressive\": true}");
is(job($node, $job, $columns), 'done|normal|mq-deadline|16777216', 'an aggressive one keeps the priority of the server');

# a session's own priority is as before: after a load, after a timeout and after a cancel
my $session = session($node);
system_or_bail('ionice', '-c', '2', '-n', '7', '-p', $session->{pid});
my $own = `ionice -p $session->{pid}`;
like($own, qr/best-effort: prio 7/, 'the session has a priority of its own');
for my $load (q(SELECT sum(rel_os_pages) > 0 FROM pgfadvise_willneed('wide')), "SELECT failed = 0 FROM residency_restore_segment('warm', $segment)")
{
	make_cold();
	is(ask($session, $load), 't', "$load");
	is(`ionice -p $session->{pid}`, $own, 'the session has its own priority afterwards');
	next if !defined $throttle;

	make_cold();
	limit(4 * 2**20);
	ask($session, 'SET statement_timeout = 500');
	like(ask($session, $load), qr/statement timeout/, 'it ends by a timeout');
	is(`ionice -p $session->{pid}`, $own, 'the session has its own priority afterwards');
	ask($session, 'SET statement_timeout = 0');
	begin($session, $load);
	until_true('it is under way', sub { cached($node, 'wide') > 300 });
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($session->{pid})");
	like(answer($session), qr/canceling statement/, 'it ends by a cancel');
	is(`ionice -p $session->{pid}`, $own, 'the session has its own priority afterwards');
	limit(undef);
}

SKIP:
{
	my $layered = $ENV{PG_RESIDENCY_LAYERED};
	skip 'no file system on an unknown device: PG_RESIDENCY_LAYERED is not set', 2 if !defined $layered;

	# a device whose scheduler is unknown; that of the data directory is the first of a job's devices
	my $first = scheduler(disk($node->data_dir));
	my $class = $first =~ /^(mq-deadline|bfq)$/ ? 'mixed' : 'normal';
	mkdir "$layered/priority" or die "$layered/priority: $!";
	$node->safe_psql('postgres', "CREATE TABLESPACE layered LOCATION '$layered/priority'");
	my %segments;
	for ([qw(known pg_default)], [qw(odd layered)])
	{
		my ($table, $tablespace) = @$_;
		$node->safe_psql('postgres', wide_table($table, 512) . "ALTER TABLE $table SET TABLESPACE $tablespace; CHECKPOINT;");
	}
	until_true('they are warm', sub {
		$node->safe_psql('postgres', "SELECT pgfadvise_willneed('$_')") for qw(known odd);
		return cached($node, 'known') >= 512 && cached($node, 'odd') >= 512;
	});
	$node->safe_psql('postgres', q(SELECT residency_snapshot('several')));
	for my $table (qw(known odd))
	{
		$segments{$table} = $node->safe_psql('postgres',
			"SELECT segment_no FROM residency_snapshot_segments('several') WHERE relfilenumber = pg_relation_filenode('$table') AND fork = 'main'");
	}
	for my $order ([qw(odd known)], [qw(known odd)])
	{
		until_true('they are cold', sub {
			$node->safe_psql('postgres', "SELECT pgfadvise_dontneed('$_')") for @$order;
			return cached($node, 'known') == 0 && cached($node, 'odd') == 0;
		});
		$job = restore($node, 'several', '{"segments": [' . join(', ', @segments{@$order}) . ']}');
		is(job($node, $job, 'state, io_class, scheduler'), "done|$class|$first", "the scheduler's name, in the order @$order");
	}
}

SKIP:
{
	skip 'no device can be slowed down: PG_RESIDENCY_THROTTLE is not set', 3 if !defined $throttle;

	# a device that gives a load in the idle class less than 8 MiB per second
	make_cold();
	limit(5 * 2**20);
	$job = start_restore($node, 'warm', "{\"segments\": [$segment]}");
	until_true('the job begins in the idle class', sub { job($node, $job, 'io_class') eq 'idle' });
	until_true('the job rises', sub { job($node, $job, 'io_class') eq 'mixed' });
	is(job($node, $job, 'state'), 'running', 'a restore that gets too little takes the priority of the server');
	cmp_ok(job($node, $job, 'loaded'), '<', 12288, 'before its end');
	limit(undef);
	wait_for_job($node, $job);
	is(job($node, $job, $columns), 'done|mixed|mq-deadline|524288', 'and says so');
}

# --- beside many direct readers, who keep requests of the idle class waiting for up to 10 s, the load can be stopped at any time
my $direct = "$directory/priority/direct";
system_or_bail('dd', 'if=/dev/zero', "of=$direct", 'bs=1M', 'count=64', 'status=none');

sub readers
{
	return map {
		my $pid = fork // die "fork: $!";
		exec('sh', '-c', "trap 'kill \$! 2>/dev/null; exit' TERM; while :; do dd if=$direct of=/dev/null bs=8k iflag=direct status=none & wait; done")
		  if $pid == 0;
		$pid
	} 1 .. 192;
}
for my $first (qw(readers restore))
{
	make_cold();
	my @readers = $first eq 'readers' ? readers() : ();
	$job = start_restore($node, 'warm', "{\"segments\": [$segment]" . ($first eq 'restore' ? ', "rate": 16000000}' : '}'));
	wait_for_job($node, $job, "'running'");
	my $pid = job($node, $job, 'pid');
	my ($seen, $stuck) = (0, 0);
	if ($first eq 'restore')
	{
		until_true('the restore is alone', sub { job($node, $job, 'loaded') > 256 });
		@readers = readers();
	}
	usleep(2_500_000);    # a request that was dropped would be read by now
	for (1 .. 100)
	{
		last if !-e "/proc/$pid/stat";
		$seen++;
		$stuck++ if slurp_file("/proc/$pid/stat") =~ /.*\) D /;
		usleep(30_000);
	}
	my $class = job($node, $job, 'io_class');
	$node->safe_psql('postgres', "SELECT residency_cancel($job)");
	wait_for_job($node, $job);
	kill 'TERM', @readers;
	waitpid($_, 0) for @readers;
	like(job($node, $job, 'state'), qr/^(?:canceled|done)$/, "a restore beside 192 readers can be canceled, first the $first");
	cmp_ok($stuck, '<', 0.5 * $seen, 'it does not sleep uninterruptibly for a request that others keep waiting') or diag("$stuck of $seen, class $class");
}

# The restore of a start does not wait in the idle class of a slow volume, where a few readers keep it.
SKIP:
{
	skip 'no throttle', 2 if !defined $throttle;
	my $file = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('wide')));
	$node->safe_psql('postgres', q(SELECT sum(rel_os_pages) FROM pgfadvise_willneed('wide'); SELECT residency_snapshot('autosave')));
	$node->stop;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_residency'\npg_residency.autosave = 0");
	system_or_bail('dd', "if=$file", 'iflag=nocache', 'count=0', 'status=none');
	limit(32 * 2**20);
	$node->start;
	$node->poll_query_until('postgres', q(SELECT state NOT IN ('restoring', 'recovering') FROM residency_worker)) or die 'it does not end';
	is($node->safe_psql('postgres', q(SELECT state, io_class FROM residency_jobs WHERE job = (SELECT restore_job FROM residency_worker))),
		'done|normal', 'that of a start keeps its own priority');
	cmp_ok($node->safe_psql('postgres', q(SELECT loaded FROM residency_jobs WHERE job = (SELECT restore_job FROM residency_worker))),
		'>', 0.9 * 16384, 'and loads the table');
	limit(undef);
}

# It does not take from recovery what that reads: WAL with a full page for each block that was changed, on the same device.
SKIP:
{
	my $main = disk($node->data_dir);
	skip 'no throttle, or no count of requests', 2 if !defined $throttle || !-e "/sys/dev/block/$main/stat";
	$node->safe_psql('postgres', wide_table('kept', 16384) . "SELECT residency_snapshot('autosave')");
	my $kept = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('kept')));
	$node->safe_psql('postgres', "CREATE TABLE changed AS SELECT i, repeat('x', 700) FROM generate_series(1, 240000) i; CHECKPOINT");
	$node->safe_psql('postgres', 'UPDATE changed SET i = -i WHERE i % 11 = 0');
	$node->stop('immediate');
	system_or_bail('sync');
	system_or_bail('dd', "if=$_", 'iflag=nocache', 'count=0', 'status=none') for $kept, glob($node->data_dir . '/pg_wal/0*');
	limit(32 * 2**20, $main);
	$node->start;
	cmp_ok(cached($node, 'kept'), '<', 2048, 'it has hardly begun when the server is consistent');
	limit(undef, $main);
	$node->poll_query_until('postgres', q(SELECT state NOT IN ('restoring', 'recovering') FROM residency_worker)) or die 'it does not end';
	cmp_ok(there($node, 'kept'), '>', 0.95 * 16384, 'and then loads the table');
}

$node->stop;
done_testing();
