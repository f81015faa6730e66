# Snapshots and jobs in unusual states: a forced generation that was removed, names in other encodings, no free background
# worker slot, files that cannot be read, a terminated starter, few descriptors.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest;
use ResidencyTest qw(session begin ask until_true);
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('odd');
$node->init(extra => [ '--encoding', 'UTF8', '--locale', 'C' ]);
$node->append_conf('postgresql.conf', "shared_buffers = 16MB\nautovacuum = off\nmax_wal_size = 2GB\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency; ' . wide_table('large', 12000) . wide_table('middle', 6000) . 'CHECKPOINT');

sub take { return $node->safe_psql('postgres', "SELECT generation, thin, measure FROM residency_snapshot($_[0])"); }
sub snapshots { return $node->safe_psql('postgres', "SELECT string_agg(generation::text, ',' ORDER BY generation) FROM residency_snapshots() WHERE name = '$_[0]'"); }

# --- forced: earlier generations are no measure any more, even after the forced one has been removed
for my $keep (1 .. 3)
{
	my $name = "forced$keep";
	$node->safe_psql('postgres', 'SELECT count(filler) FROM large; SELECT count(filler) FROM middle');
	take("'$name', $keep");
	$node->safe_psql('postgres', "SELECT residency_evict('large')");
	like(take("'$name', $keep"), qr/^2\|t\|/, "keep $keep: a snapshot that lost most of it is thin");
	$node->safe_psql('postgres', "SELECT residency_evict('middle')");
	like(take("'$name', $keep, true"), qr/^3\|f\|$/, 'a forced one is not');
	take("'$name', $keep") for 1 .. $keep + 1;
	like($node->safe_psql('postgres', "SELECT thin, current, measure < 6000 FROM residency_snapshot('$name', $keep)"), qr/^f\|t\|t$/,
		'nor are those after it, when it is gone: the thin one before it is no measure');
	unlike(snapshots($name), qr/\b3\b/, 'it was pruned');
}

# --- names in other encodings than that of the server process
$node->safe_psql('postgres', "CREATE DATABASE win ENCODING 'WIN1252' LOCALE 'C' TEMPLATE template0; CREATE DATABASE \"gr\x{c3}\x{b6}\x{c3}\x{9f}e\" TEMPLATE template0;
	CREATE DATABASE euc ENCODING 'EUC_JP' LOCALE 'C' TEMPLATE template0");
# with a byte in a name that is no character in WIN1252
$node->safe_psql('win', "SET client_encoding = 'WIN1252'; CREATE EXTENSION pg_residency; CREATE TABLE plain AS SELECT 1 AS a; CREATE TABLE odd\x{81} AS SELECT 1 AS a");
$node->safe_psql('euc', 'CREATE EXTENSION pg_residency; CREATE TABLE plain AS SELECT 1 AS a');
for my $database (qw(win euc postgres))
{
	is($node->safe_psql($database, "SELECT count(*) > 0 FROM residency_snapshot('encodings', 1)"), 't', "a snapshot taken in database $database, beside one of a name that it cannot spell");
	is($node->safe_psql($database, "SELECT count(*) FROM residency_snapshot_names('encodings') WHERE kind = 'database' AND problem IS NOT NULL AND name <> 'template0'"),
		'0', 'all databases are named');
	is($node->safe_psql($database, "SELECT count(*) FROM residency_snapshot_names('encodings') n, pg_database d WHERE d.oid = n.database AND n.name = 'public.plain' AND d.datname IN ('win', 'euc')"),
		'2', 'and their relations');
	is($node->safe_psql($database, "SELECT count(*) FROM residency_snapshot_names('encodings') WHERE name LIKE 'public.%odd?%'"), '1', 'with a question mark for what cannot be told');
}
# a name does not depend on settings of the database's owner
$node->safe_psql('postgres', 'ALTER DATABASE win SET quote_all_identifiers = on');
is($node->safe_psql('postgres', "SET quote_all_identifiers = on; SELECT count(*) FROM residency_current_names() WHERE name IN ('public.plain', 'public.large')"), '3', 'names are quoted only where SQL needs it');

# --- no free slot: the former names are kept, with a warning
$node->safe_psql('postgres', "CREATE TABLE \"gr\x{c3}\x{b6}\x{c3}\x{9f}e\" AS SELECT 1 AS a; SELECT residency_snapshot('encodings', 1)");
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
$node->safe_psql('win', "SELECT residency_snapshot('encodings', 1)") for 1 .. 3;
is($node->safe_psql('postgres', "SELECT count(*) FROM residency_snapshot_names('encodings') WHERE name = 'public.\"gr\x{c3}\x{b6}\x{c3}\x{9f}e\"'"),
	'1', 'a name that a session of another encoding has carried over is the same');
my ($rc, $out, $err) = $node->psql('postgres', "SELECT generation FROM residency_snapshot('encodings', 1)");
like($err, qr/WARNING:  could not read the relation names of database "\w+": out of background worker slots/, 'a snapshot without workers warns');
is($node->safe_psql('postgres', "SELECT count(*) FROM residency_snapshot_names('encodings') n, pg_database d WHERE d.oid = n.database AND n.name = 'public.plain' AND d.datname IN ('win', 'euc')"),
	'2', 'and has the names that the last one had');
is($node->safe_psql('postgres', "SELECT count(relation), count(*) > 200, min(problem) FROM residency_server WHERE database = 'win'"),
	'0|t|out of background worker slots', 'the files of a database that was not read are shown without names');
is($node->safe_psql('postgres', "SELECT count(*) FROM residency_server WHERE database = 'postgres' AND relation = 'large'"), '1', 'beside the names of this one');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;

# --- what an interrupted DROP DATABASE leaves takes no connections, and is not tried
$node->safe_psql('postgres', "CREATE DATABASE left_over; UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'left_over'");
my $at = -s $node->logfile;
$node->safe_psql('postgres', "SELECT residency_snapshot('encodings', 1)");
is($node->safe_psql('postgres', "SELECT problem FROM residency_snapshot_names('encodings') WHERE kind = 'database' AND name = 'left_over'"),
	'the drop of the database was interrupted', 'a database that is left over is named, with the reason');
unlike(substr(slurp_file($node->logfile), $at), qr/FATAL/, 'and the log has no error');
$node->safe_psql('postgres', 'DROP DATABASE left_over');

# --- files: an unreadable one hides no other, and no generation is judged or removed without it
$node->safe_psql('postgres', "SELECT count(filler) FROM large; SELECT residency_snapshot('unread', 1)");
my $file = $node->data_dir . '/pg_residency/unread@1.snapshot';
chmod 0000, $file or die "chmod: $!";
like($node->safe_psql('postgres', "SELECT problem FROM residency_snapshots() WHERE name = 'unread'"), qr/^could not read the file: Permission denied$/, 'an unreadable file is a row with a problem');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM residency_snapshots() WHERE problem IS NULL'), '>=', 3, 'beside the others');
$node->safe_psql('postgres', "SELECT residency_evict('large')");
($rc, $out, $err) = $node->psql('postgres', "SELECT residency_snapshot('unread', 1)");
like($err, qr/cannot compare with snapshot "unread\@1": could not read the file/, 'none is taken that could not be compared with it');
ok(-e $file, 'and it stays');
chmod 0600, $file or die "chmod: $!";
like(take("'unread', 1"), qr/^2\|t\|/, 'readable again it is the measure');
# names that cannot be read hold no snapshot up
$file = $node->data_dir . '/pg_residency/unread@2.names';
chmod 0000, $file or die "chmod: $!";
($rc, $out, $err) = $node->psql('postgres', "SELECT generation FROM residency_snapshot('unread', 2)");
is("$rc|$out", '0|3', 'a snapshot is taken beside names that cannot be read');
like($err, qr/WARNING:  could not read file "pg_residency\/unread\@2.names": Permission denied/, 'with a warning');
chmod 0600, $file or die "chmod: $!";
# a damaged generation is not current, and does not count for keep
$node->safe_psql('postgres', "SELECT count(filler) FROM large; SELECT residency_snapshot('damaged', 1); SELECT residency_snapshot('damaged', 2)");
open(my $handle, '+<', $node->data_dir . '/pg_residency/damaged@2.snapshot') or die "open: $!";
seek($handle, 700, 0) or die "seek: $!";
print $handle "\x{7f}" x 8;
close($handle) or die "close: $!";
is($node->safe_psql('postgres', "SELECT generation, current, problem IS NULL FROM residency_snapshots() WHERE name = 'damaged' ORDER BY 1"), "1|t|t\n2|f|f", 'the bare name means the newest that can be used');
$node->safe_psql('postgres', "SELECT residency_snapshot('damaged', 2)");
is(snapshots('damaged'), '1,2,3', 'a damaged one takes no place of those that are kept');
# a names file without a snapshot
append_to_file($node->data_dir . '/pg_residency/killed@7.names', 'x');
take("'damaged', 2");
ok(!-e $node->data_dir . '/pg_residency/killed@7.names', 'names without a snapshot are removed');

# --- where no file can grow, a snapshot can be dropped
my $full = 'x' x 60;
take("'$full'");
my $writer = session($node);
system_or_bail('prlimit', "--pid=$writer->{pid}", '--fsize=60');
like(ask($writer, "SELECT residency_drop_snapshot('$full')"), qr/could not write file/, 'a session that can write nothing says so');
is(snapshots($full), '', 'but has dropped the snapshot');
$writer->{psql}->kill_kill;

sub job_files { return scalar grep { /\.\d+$/ } glob($node->data_dir . '/pg_residency/pgsql_tmp.job.*'); }

# --- a database whose owner keeps it locked delays neither the restore of its buffers nor a snapshot for long
$node->safe_psql('win', 'CHECKPOINT; SELECT count(*) FROM plain');
$node->safe_psql('postgres', "SELECT residency_snapshot('locked', 1)");
$node->restart;
my $owner = session($node);
ask($owner, 'BEGIN; ALTER DATABASE win RENAME TO other');
my $locked = restore($node, 'locked', '{"shared_buffers": true}');
like(job($node, $locked, 'state, message'), qr/^done\|could not restore the shared buffers of database \d+: the worker failed; see the server log$/, 'a job goes on beside a locked database');
($rc, $out, $err) = $node->psql('postgres', "SELECT generation FROM residency_snapshot('locked', 1)");
like("$rc|$out|$err", qr/^0\|2\|.*WARNING:  could not read the relation names of database "\w+": the worker failed/s, 'and so does a snapshot');
$owner->{psql}->kill_kill;

# --- a session terminated while it starts a job leaves no job
my $postmaster = $node->safe_psql('postgres', "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)");
my $jobs = $node->safe_psql('postgres', 'SELECT count(*) FROM residency_jobs');
END { kill 'CONT', $postmaster if $postmaster; }
my $files = job_files();
my $starter = session($node);
kill 'STOP', $postmaster;
begin($starter, q(SELECT residency_restore_start('damaged')));
until_true('the job has a file', sub { job_files() > $files; });
kill 'TERM', $starter->{pid};
until_true('the session removes the file', sub { job_files() == $files; });
kill 'CONT', $postmaster;
$starter->{psql}->kill_kill;
is($node->safe_psql('postgres', 'SELECT count(*) FROM residency_jobs'), $jobs, 'a starter that is terminated leaves no job behind');
is(job_files(), $files, 'nor its file');

# --- few descriptors, all of them in use, while the I/O pressure is read
SKIP:
{
	skip 'the kernel has no pressure stall information', 2 if !-r '/proc/pressure/io';
	$node->safe_psql('postgres', "DO \$\$ BEGIN FOR i IN 1..300 LOOP EXECUTE format('CREATE TABLE few_%s AS SELECT 1 AS a', i); END LOOP; END \$\$; CHECKPOINT; SELECT residency_snapshot('few')");
	$node->append_conf('postgresql.conf', 'max_files_per_process = 64');
	$node->restart;
	$node->safe_psql('postgres', "DO \$\$ BEGIN FOR i IN 1..300 LOOP PERFORM residency_evict(('few_' || i)::regclass); END LOOP; END \$\$");
	my $job = restore($node, 'few', '{"max_io_pressure": 50, "rate": 4000000}');
	is(job($node, $job, 'state, message'), 'done|', 'a job that looks at the pressure needs no descriptor of PostgreSQL\'s for that');
	is(job($node, $job, SUMS), 't', 'its sums hold');
}
# --- a job's relations keep their names after its snapshot is dropped, and a file is restored once, however often it is selected
$node->safe_psql('postgres', "SELECT count(filler) FROM large; SELECT count(filler) FROM middle; SELECT residency_snapshot('named', 1, true)");
my $where = $node->safe_psql('postgres', "SELECT format('[1663, %s, %s]', d.oid, pg_relation_filenode('large')) FROM pg_database d WHERE d.datname = current_database()");
my $number = $node->safe_psql('postgres', "SELECT segment_no FROM residency_snapshot_segments('named') WHERE relfilenumber = pg_relation_filenode('middle') AND fork = 'main' AND database <> 1 LIMIT 1");
my $twice = restore($node, 'named', "{\"whole\": [$where, $where], \"segments\": [$number, $number]}");
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT (tablespace, database, relfilenumber, fork, segment)) FROM residency_job_segments($twice)"), '2|2', 'each file once');
my $catalog = $node->safe_psql('postgres', q(SELECT format('[1664, 0, %s]', pg_relation_filenode('pg_database'))));
my $shared = $node->safe_psql('postgres', "SELECT residency_restore_start(NULL, '{\"whole\": [$catalog, $catalog]}')");
wait_for_job($node, $shared);
is(job($node, $shared, 'state, segments, wanted = resident AND wanted > 0'), 'done|1|t', 'and so is a shared catalog');
$node->safe_psql('postgres', "SELECT residency_drop_snapshot('named')");
is($node->safe_psql('postgres', "SELECT string_agg(name, ',' ORDER BY name) FROM residency_job_relations($twice)"), 'public.large,public.middle', 'the relations of a job keep their names when its snapshot is dropped');
# --- segments that a job did not reach have a reason
$node->safe_psql('postgres', "SELECT residency_evict('large'), residency_evict('middle')");
my $ended = start_restore($node, 'damaged', '{"rate": 8192, "time_limit": 1}');
wait_for_job($node, $ended);
is(job($node, $ended, "state, message ~ 'time limit', loaded < 1000"), 'canceled|t|t', 'a job that has to load more than its time allows does not end');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM residency_job_segments($ended) WHERE NOT done"), '>', 0, 'some segments were not reached');
is($node->safe_psql('postgres', "SELECT count(*) FROM residency_job_segments($ended) WHERE NOT done AND reason IS DISTINCT FROM 'the job ended before this segment was restored'"), '0', 'segments that were not reached have a reason');
is(signals($node), '', 'nothing has crashed');

$node->stop;
done_testing();
