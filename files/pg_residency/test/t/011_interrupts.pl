# A session with a long load from a slow device reacts to others: it answers a barrier, ends for recovery and for
# a timeout, and otherwise continues.  PG_RESIDENCY_THROTTLE is the file of this test's own control group that
# limits what its processes read from a device: blkio.throttle.read_bps_device of version 1, or io.max.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/..";

use IPC::Run;
use Time::HiRes qw(time usleep);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest qw(there);
use Test::More;

my $throttle = $ENV{PG_RESIDENCY_THROTTLE};
plan skip_all => 'no device can be slowed down: PG_RESIDENCY_THROTTLE is not set' if !defined $throttle;

# on a device of its own if there is one, so that other reads of this test are fast
my $directory = $ENV{PG_RESIDENCY_DEVICE};
my $primary = PostgreSQL::Test::Cluster->new('slow');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', "shared_buffers = 1MB\nautovacuum = off\nmax_wal_size = 1GB");
$primary->start;
$primary->safe_psql('postgres', <<'SQL');
CREATE EXTENSION pg_residency;
CREATE TABLE wide (a int, filler text) WITH (fillfactor = 10);
ALTER TABLE wide ALTER filler SET STORAGE PLAIN;
INSERT INTO wide SELECT i, repeat('x', 700) FROM generate_series(1, 8192) i;
CHECKPOINT;
SQL
$primary->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('slow_standby');
$standby->init_from_backup($primary, 'copy', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = 100ms');
my $database = $primary->safe_psql('postgres', 'SELECT oid FROM pg_database WHERE datname = current_database()');
my $file = $primary->safe_psql('postgres', q(SELECT pg_relation_filepath('wide')));

# the database's directory of a server that does not run moves to the device
sub onto_device
{
	my ($node) = @_;
	return if !defined $directory;
	my $to = "$directory/" . $node->name;
	system_or_bail('cp', '-R', $node->data_dir . "/base/$database", $to);
	system_or_bail('rm', '-r', $node->data_dir . "/base/$database");
	symlink($to, $node->data_dir . "/base/$database") or die $!;
}
$primary->stop;
onto_device($_) for ($primary, $standby);
$_->start for ($primary, $standby);

my $event = $primary->pg_version >= 17 ? 'Resid%' : 'Extension';
my $number = (stat($primary->data_dir . "/$file"))[0];
my $device = sprintf('%d:%d', ($number >> 8) & 0xfff, ($number & 0xff) | (($number >> 12) & 0xfff00));
# reads can only be limited for a whole disk
if (-e "/sys/dev/block/$device/partition")
{
	$device = slurp_file("/sys/dev/block/$device/../dev");
	chomp $device;
}

# bytes per second, undef for no limit
sub limit
{
	my ($rate) = @_;
	open(my $out, '>', $throttle) or die "$throttle: $!";
	print $out "$device ", $throttle =~ /io\.max$/ ? 'rbps=' . ($rate // 'max') : $rate // 0, "\n";
	close($out) or die "$throttle: $!";
}
END { limit(undef) if defined $device; }

sub resident
{
	my ($node) = @_;
	my $path = $node->data_dir . "/$file";
	my $bytes = `fincore --raw --noheadings --bytes --output RES "$path"`;
	die "fincore(1) of util-linux does not count $path" if $? != 0 || $bytes !~ /^\s*(\d+)/;
	return $1 / 2**20;
}

# A session that has begun to load the table, 64 MiB at 4 MiB per second.
my ($out, $err);
sub begin_loading
{
	my ($node, $what) = @_;
	for (1 .. 20)
	{
		$node->safe_psql('postgres', q(SELECT pgfadvise_dontneed('wide')));
		last if resident($node) < 1;
		usleep(100_000);
	}
	limit(4 * 2**20);
	($out, $err) = ('', '');
	my $session = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "$what -- loads" ], '<', \undef, '>', \$out, '2>', \$err);
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '-- loads\$' AND wait_event LIKE '$event'")
		or die 'it does not load';
	return $session;
}

sub loads
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity WHERE query ~ '-- loads$' AND state = 'active'));
}

# --- a barrier: DROP DATABASE waits until each session of the server has closed the files of that database ---

$primary->safe_psql('postgres', q(SELECT residency_snapshot('warm')));
my $segment = $primary->safe_psql('postgres',
	q(SELECT segment_no FROM residency_snapshot_segments('warm') WHERE relfilenumber = pg_relation_filenode('wide') AND fork = 'main'
	  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())));
my $map = q((SELECT repeat('1', rel_os_pages::int)::varbit FROM pgfincore('wide')));
for my $what (q(SELECT sum(rel_os_pages) > 0 FROM pgfadvise_willneed('wide')),
	"SELECT pages_loaded > 0 FROM pgfadvise_loader('wide', 0, true, true, $map)",
	"SELECT resident = wanted AND failed = 0 FROM residency_restore_segment('warm', $segment)")
{
	$primary->safe_psql('postgres', 'CREATE DATABASE elsewhere');
	my $session = begin_loading($primary, $what);
	my $begun = time();
	$primary->safe_psql('postgres', 'DROP DATABASE elsewhere');
	my $took = time() - $begun;
	is(loads($primary), 1, sprintf('%s: DROP DATABASE has not waited for its end (%.1f s)', $what, $took));
	cmp_ok(resident($primary), '<', 60, 'which is far');
	limit(undef);
	$session->finish;
	is("$out$err", "t\n", 'it has gone on');
	cmp_ok(there($primary, 'wide') * 8192 / 2**20, '>=', 63, 'and loaded everything');
}

# --- a timeout other than the statement's ---

SKIP:
{
	skip('there is no transaction_timeout', 2) if $primary->pg_version < 17;
	my $begun = time();
	my $session = begin_loading($primary, q(SET transaction_timeout = '1s'; SELECT pgfadvise_willneed('wide')));
	$session->finish;
	my $took = time() - $begun;
	limit(undef);
	like($err, qr/terminating connection due to transaction timeout/, 'a transaction_timeout ends a load');
	cmp_ok($took, '<', 60, sprintf('in %.1f s', $took));
}

# --- a cancel of an aggressive restore, which a large folio would block for seconds ---

limit(undef);
$primary->safe_psql('postgres', q(SELECT residency_evict('wide')));
limit(2**20);
my $job = $primary->safe_psql('postgres', "SELECT residency_restore_start('warm', '{\"segments\": [$segment], \"aggressive\": true}')");
$primary->poll_query_until('postgres', "SELECT loaded > 0 FROM residency_jobs WHERE job = $job") or die 'it loads nothing';
my $cancel = time();
$primary->safe_psql('postgres', "SELECT residency_cancel($job)");
$primary->poll_query_until('postgres', "SELECT state = 'canceled' FROM residency_jobs WHERE job = $job") or die 'it is not canceled';
$cancel = time() - $cancel;
limit(undef);
cmp_ok($cancel, '<', 2, sprintf('a cancel ends an aggressive restore from a slow device in %.1f s', $cancel));

# --- recovery, which needs the table ---

$primary->wait_for_catchup($standby, 'replay');
my $session = begin_loading($standby, q(SELECT pgfadvise_willneed('wide')));
my $begun = time();
$primary->safe_psql('postgres', 'TRUNCATE wide');
$primary->wait_for_catchup($standby, 'replay');
my $took = time() - $begun;
$session->finish;
limit(undef);
like($err, qr/canceling statement due to conflict with recovery/, 'recovery ends a load');
cmp_ok($took, '<', 60, sprintf('in %.1f s', $took));

unlike(slurp_file($_->logfile), qr/terminated by signal|all server processes terminated/, 'nothing has ended the server ' . $_->name) for ($primary, $standby);
# --- a snapshot does not contain a block that is still being read, which cachestat(2) counts
limit(undef);
$primary->safe_psql('postgres', q(CREATE TABLE small (a int, filler text) WITH (fillfactor = 10); ALTER TABLE small ALTER filler SET STORAGE PLAIN;
	INSERT INTO small SELECT i, repeat('x', 700) FROM generate_series(1, 32) i; CHECKPOINT; SELECT residency_snapshot('early')));
$primary->safe_psql('postgres', q(SELECT residency_evict('small')));
my $small = q(relfilenumber = pg_relation_filenode('small') AND fork = 'main');
limit(32 * 1024);
my $reader = IPC::Run::start([ 'psql', '-XAtq', '-d', $primary->connstr('postgres'), '-c', q(SELECT FROM pgfadvise_willneed('small')) ], '<', \undef, '>', \$out, '2>', \$err);
$primary->poll_query_until('postgres', "SELECT resident = 32 FROM residency_segments() WHERE $small") or die 'it is not requested';
$primary->safe_psql('postgres', q(SELECT residency_snapshot('early')));
limit(undef);
$reader->finish;
cmp_ok($primary->safe_psql('postgres', "SELECT coalesce(sum(wanted), 0) FROM residency_snapshot_segments('early') WHERE $small"), '<', 32,
	'a snapshot does not contain a block that is still being read');

$standby->stop;
$primary->stop;
if (defined $directory)
{
	system_or_bail('rm', '-r', map { "$directory/" . $_->name } ($primary, $standby));
}
done_testing();
