# The files of jobs: removed or damaged during a start, removed while the job runs, unreadable, of another kind, impossible to
# remove.  And waits that end by the clock, not by the number of signals; a background worker slot that becomes free late.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use Fcntl;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use ResidencyTest qw(:DEFAULT session begin answer ask until_true postmaster begin_start);
use Test::More;
use Time::HiRes qw(sleep time);

my $node = PostgreSQL::Test::Cluster->new('job_files');
$node->init;
$node->append_conf('postgresql.conf', "shared_buffers = 64MB\nautovacuum = off\nmax_logical_replication_workers = 0\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency; ' . wide_table('one', 2000) . wide_table('two', 2000)
	. 'CHECKPOINT; SELECT residency_snapshot(\'small\', 1)');
# no block of the tables is in shared buffers
$node->restart;
my $directory = $node->data_dir . '/pg_residency';
my $list = q(SELECT string_agg(job::text, ',' ORDER BY job) FROM residency_jobs);
my ($starter, $watcher) = (session($node), session($node));

# no server is left stopped
END { kill 'CONT', postmaster($node) if $node && -e $node->data_dir . '/postmaster.pid'; }

sub file { return "$directory/pgsql_tmp.job.$_[0]"; }

# loads table one, which was evicted, at so many blocks a second, and then table two
sub slow_job
{
	my ($blocks) = @_;
	my $rate = $blocks * 8192;
	$node->safe_psql('postgres', "SELECT residency_evict('one'), residency_evict('two')");
	my $whole = $node->safe_psql('postgres', "SELECT string_agg(format('[1663, %s, %s]', d.oid, pg_relation_filenode(t::regclass)), ', ' ORDER BY t)
		FROM pg_database d, unnest('{one,two}'::text[]) t WHERE datname = current_database()");
	my $job = $node->safe_psql('postgres', "SELECT residency_restore_start(NULL, '{\"rate\": $rate, \"whole\": [$whole]}')");
	my $pid = job($node, $job, 'pid');
	return ($job, $pid);
}

# --- a start whose file is removed or damaged before its worker reads it fails, and leaves nothing
for my $harm (
	[ removed => sub { unlink $_[0] or die "unlink: $!"; } ],
	[ damaged => sub { truncate($_[0], 10) or die "truncate: $!"; } ])
{
	my $job = begin_start($node, $starter, $watcher);
	$harm->[1]->(file($job));
	kill 'CONT', postmaster($node);
	like(answer($starter), qr/ERROR:  could not start the worker of the restore/, "a start whose file was $harm->[0] fails");
	is(join(' ', glob("$directory/pgsql_tmp.{job,buffers}.*")), '', 'and leaves no file');
}

# changes a byte at that distance from the end of a file
sub damage
{
	my ($path, $from_end) = @_;
	open(my $handle, '+<:raw', $path) or die "open: $!";
	seek($handle, -$from_end, 2) && read($handle, my $byte, 1) && seek($handle, -$from_end, 2) or die "seek: $!";
	print $handle ~$byte & "\xff";
	close($handle) or die "close: $!";
}

# --- a job whose plan is damaged fails, and its message has the path
my $job = begin_start($node, $starter, $watcher);
damage(file($job), 1);
kill 'CONT', postmaster($node);
is(answer($starter), $job, 'a job whose plan is damaged starts');
is(job($node, $job, 'state, message'), qq(failed|job file "pg_residency/pgsql_tmp.job.$job" is damaged), 'and fails');
# its file ends with the last segment now
until_true('the plan is removed', sub { -s file($job) == 2048 + 128 * job($node, $job, 'segments'); });
damage(file($job), 128);
my ($ended, $none, $damaged) = $node->psql('postgres', "SELECT * FROM residency_job_segments($job)");
like($damaged, qr/ERROR:  job file "pg_residency\/pgsql_tmp.job.$job" is damaged/, 'a damaged segment is not shown');
is(job($node, $job, 'state'), 'failed', 'but its job is');
damage(file($job), 128 * job($node, $job, 'segments') + 2048 - 100);
is(job($node, $job, 'state'), '', 'a job whose state is damaged is not');

# --- signals do not shorten the time that a start waits for its worker
$job = begin_start($node, $starter, $watcher);
for (my $until = time + 5; time < $until; sleep 0.001)
{
	kill 'USR1', $starter->{pid};
}
kill 'CONT', postmaster($node);
is(answer($starter), $job, 'a start waits for its worker, however many signals arrive meanwhile');
come_true($node, "SELECT NOT EXISTS (SELECT FROM residency_jobs WHERE job = $job AND state IN ('starting', 'waiting', 'running'))") or die 'the job does not end';
is(job($node, $job, 'state'), 'done', 'and its job is done');

# --- a running job whose file is removed ends: nobody could find or cancel it
my $pid;
($job, $pid) = slow_job(40);
unlink file($job) or die "unlink: $!";
for (my $until = time + 180; time < $until && kill(0, $pid); sleep 0.05) { }
my $next = restore($node, 'small');
is(job($node, $next, 'state, message'), 'done|', 'a job ends when its file is removed, and the next one can run');
ok(slurp_file($node->logfile) =~ /restore job $job ended in state "interrupted".*\n.*DETAIL:  .*the file of the job was removed/, 'the log says why');
# a worker that has not ended
kill 'TERM', $pid;
until_true('the worker ends', sub { !kill 0, $pid; });

# --- a job that fails while its directory cannot be searched exists nevertheless
($job, $pid) = slow_job(500);
my $mode = (stat $directory)[2] & 07777;
open(my $handle, '+<:raw', file($job)) or die "open: $!";
# the second segment, a record of 128 bytes
seek($handle, 2048 + 128, 0) or die "seek: $!";
print $handle 'x' x 128;
close($handle) or die "close: $!";
chmod 0, $directory or die "chmod: $!";
until_true('the worker ends', sub { !kill 0, $pid; });
chmod $mode, $directory or die "chmod: $!";
is(job($node, $job, 'state, message'), qq(failed|job file "pg_residency/pgsql_tmp.job.$job" is damaged), 'a job that fails while its directory cannot be searched says so');

# --- eight jobs, of which one cannot be read: it hides no other, and prevents no start
restore($node, 'small') while $node->safe_psql('postgres', 'SELECT count(*) FROM residency_jobs') < 8;
my $before = ask($watcher, $list);
my ($newest) = $before =~ /(\d+)$/;
chmod 0, file($newest) or die "chmod: $!";
my ($rc, $out, $err) = $node->psql('postgres', $list);
is($out, $before =~ s/,\d+$//r, 'a job whose file cannot be opened hides no other');
like($err, qr/WARNING:  could not open file "pg_residency\/pgsql_tmp.job.$newest": Permission denied/, 'and there is a warning');
($rc, $out, $err) = $node->psql('postgres', "SELECT message FROM residency_job_segments($newest)");
isnt($rc, 0, 'itself it is an error');
$job = ask($starter, q(SELECT residency_restore_start('small')));
is($job, $newest + 1, 'a start does not depend on it');
wait_for_job($node, $job);
chmod 0600, file($newest) or die "chmod: $!";
is(job($node, $newest, 'state'), 'done', 'nor does it remove it');

# --- a FIFO in place of a job's file blocks nobody
my $fifo = file($job + 5);
POSIX::mkfifo($fifo, 0600) or die "mkfifo: $!";
begin($watcher, 'SELECT count(*) > 0 FROM residency_jobs');
for (my $until = time + 180; time < $until && $watcher->{out} !~ /\(end\)/; sleep 0.05)
{
	$watcher->{psql}->pump_nb;
}
is($watcher->{out} =~ s/\n.*//sr, 't', 'a FIFO blocks no reader');
# releases one that is blocked
sysopen(my $release, $fifo, O_RDWR | O_NONBLOCK) or die "open: $!";
answer($watcher);
close($release);
is(restore($node, 'small'), $job + 1, 'and no start');
ok(!-e $fifo, 'which removes it');

# --- a job whose names cannot be removed remains, so that they are found again
my ($oldest) = ask($watcher, $list) =~ /^(\d+)/;
unlink file($oldest) . '.names';
mkdir file($oldest) . '.names' or die "mkdir: $!";
restore($node, 'small') for 1 .. 8;
ok(-e file($oldest), 'a job remains as long as one of its files does');
ok(slurp_file($node->logfile) =~ /LOG:  could not remove file "pg_residency\/pgsql_tmp\.job\.$oldest\.names"/, 'the log says which');
rmdir file($oldest) . '.names' or die "rmdir: $!";
restore($node, 'small');
ok(!-e file($oldest), 'then it is removed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM residency_jobs'), 8, 'and eight remain');

# --- shared buffers are restored as soon as a background worker slot is free
$_->{psql}->kill_kill for ($starter, $watcher);
$node->append_conf('postgresql.conf', 'max_worker_processes = 2');
$node->safe_psql('postgres', q(SELECT count(filler) FROM one; SELECT residency_snapshot('buffers', 1)));
$node->restart;
my $parallel = session($node);
my $forced = $node->safe_psql('postgres', q(SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')));
ask($parallel, "SET $forced = on");
begin($parallel, 'SELECT pg_sleep(600)');
come_true($node, q(SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'parallel worker')) or die 'no parallel worker';
$job = start_restore($node, 'buffers', '{"shared_buffers": true}');
come_true($node, "SELECT state <> 'running' OR buffers_wanted > 0 FROM residency_jobs WHERE job = $job") or die 'no buffers are wanted';
$node->safe_psql('postgres', "SELECT pg_cancel_backend($parallel->{pid})");
wait_for_job($node, $job);
is(job($node, $job, 'state, message, buffers_resident > 1500'), 'done||t', 'a job waits for a slot to restore shared buffers');
$parallel->{psql}->kill_kill;

# without one it says so, once for all databases
$node->append_conf('postgresql.conf', 'max_worker_processes = 1');
$node->restart;
$job = restore($node, 'buffers', '{"shared_buffers": true}');
like(job($node, $job, 'state, message'), qr/^done\|could not restore the shared buffers of database \d+: out of background worker slots$/, 'if none becomes free, it says so');

# --- a time limit does not depend on the clock of the day, which may jump
SKIP:
{
	my $library = "$PostgreSQL::Test::Utils::tmp_check/jump.so";
	skip 'the sanitizers have to be the first library', 2 if $ENV{ASAN_OPTIONS};
	my $source = "$PostgreSQL::Test::Utils::tmp_check/jump.c";
	append_to_file($source, <<'C');
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	tv->tv_sec = now.tv_sec + (access(getenv("CLOCK_JUMPS"), F_OK) == 0 ? 3600 : 0);
	tv->tv_usec = now.tv_nsec / 1000;
	return 0;
}
C
	skip 'no compiler', 2 if system('cc', '-shared', '-fPIC', '-o', $library, $source) != 0;
	$node->stop;
	{
		local @ENV{qw(LD_PRELOAD CLOCK_JUMPS)} = ($library, "$library.jumps");
		$node->start;
	}
	($job) = slow_job(40);
	$node->safe_psql('postgres', "SELECT residency_cancel($job)");
	wait_for_job($node, $job);
	$node->safe_psql('postgres', "SELECT residency_evict('one')");
	$job = start_restore($node, 'small', '{"rate": 327680, "time_limit": 600}');
	append_to_file("$library.jumps", '');
	is($node->safe_psql('postgres', "SELECT now() - started_at > '1 hour' FROM residency_jobs WHERE job = $job"), 't', 'the clock jumps by an hour');
	sleep 1;
	is(job($node, $job, 'state'), 'running', 'a time limit of ten minutes is not reached');
	$node->safe_psql('postgres', "SELECT residency_cancel($job)");
	wait_for_job($node, $job);
}

is(signals($node), '', 'no process ended by a signal');
$node->stop;
done_testing();
