# Starts of jobs that are canceled, killed or watched: each job has a number of its own, its state never moves back, and eight are
# remembered.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use File::Copy;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest qw(:DEFAULT session begin answer ask until_true postmaster begin_start);
use Test::More;
use Time::HiRes qw(sleep time);

my $node = PostgreSQL::Test::Cluster->new('starts');
$node->init;
$node->append_conf('postgresql.conf', "shared_buffers = 16MB\nautovacuum = off\nrestart_after_crash = on\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency; CREATE TABLE seen (job int, polls int); CREATE TABLE over (a int);
	CHECKPOINT; SELECT residency_snapshot(\'small\', 1)');
my $directory = $node->data_dir . '/pg_residency';
my $alive = q(state IN ('starting', 'waiting', 'running'));
my $list = q(SELECT string_agg(job::text, ',' ORDER BY job) FROM residency_jobs);

# of a process in /proc, as long as it exists
sub command
{
	my ($process) = @_;
	open(my $in, '<', "$process/cmdline") or return '';
	return scalar(readline($in)) // '';
}

sub ended
{
	my ($session, $job) = @_;
	until_true("job $job ends", sub { ask($session, "SELECT $alive FROM residency_jobs WHERE job = $job") ne 't'; });
	return ask($session, "SELECT state FROM residency_jobs WHERE job = $job");
}

# no server is left stopped
END { kill 'CONT', postmaster($node) if -e $node->data_dir . '/postmaster.pid'; }

my ($starter, $watcher, $other) = (session($node), session($node), session($node));

# --- a session that reads jobs during their starts, slowly too, sees no running job as interrupted
for my $poller ($watcher, $other)
{
	begin($poller, q(DO $$ DECLARE polls int := 0; BEGIN
		WHILE NOT EXISTS (SELECT FROM over) LOOP
			INSERT INTO seen SELECT job, polls FROM residency_jobs WHERE state = 'interrupted';
			polls := polls + 1;
		END LOOP;
		INSERT INTO seen VALUES (0, polls);
	END $$));
}
begin($starter, qq(DO \$\$ BEGIN FOR i IN 1 .. 200 LOOP
	PERFORM residency_restore_start('small');
	WHILE EXISTS (SELECT FROM residency_jobs WHERE $alive) LOOP PERFORM pg_sleep(0.001); END LOOP;
END LOOP; END \$\$));
until_true('200 jobs are done', sub {
	for my $poller ($watcher, $other)
	{
		kill 'STOP', $poller->{pid};
		sleep rand(0.03);
		kill 'CONT', $poller->{pid};
	}
	$starter->{psql}->pump_nb;
	return $starter->{out} =~ /\(end\)/;
});
is(answer($starter), '', '200 jobs, one after another');
ask($starter, 'INSERT INTO over VALUES (1)');
is(answer($_), '', 'have been watched') for ($watcher, $other);
my $polls = ask($starter, 'SELECT min(polls) FROM seen WHERE job = 0');
is(ask($starter, "SELECT count(*), string_agg(DISTINCT job::text, ',') FROM seen WHERE job > 0"), '0|', "at least $polls times, and none was seen as interrupted");
is(ask($starter, 'SELECT count(*), count(*) FILTER (WHERE state = \'done\') FROM residency_jobs'), '8|8', 'the last eight are remembered');

# --- canceled after the worker has begun: a job as any other, for which the oldest is removed
my $canceled = 0;
for (my $tries = 0; $canceled < 3 && $tries < 10; $tries++)
{
	my $before = ask($watcher, $list);
	my $job = begin_start($node, $starter, $watcher);
	kill 'STOP', $starter->{pid};
	kill 'CONT', postmaster($node);
	until_true("job $job begins", sub { ask($watcher, "SELECT state FROM residency_jobs WHERE job = $job") ne 'starting'; });
	ask($watcher, "SELECT pg_cancel_backend($starter->{pid})");
	kill 'CONT', $starter->{pid};
	# unless it was stopped while it read the job's state
	$canceled++ if answer($starter) =~ /canceling statement due to user request/;
	ended($watcher, $job);
	is(ask($watcher, $list), $before =~ s/^\d+,//r . ",$job", 'a job whose start is canceled when it has begun is the last of the eight that are remembered');
}
is($canceled, 3, 'three of them were');

# --- after the worker has begun, the start cannot fail
my $mode = (stat $directory)[2] & 07777;
my $job = begin_start($node, $starter, $watcher);
chmod 0300, $directory or die "chmod: $!";
kill 'CONT', postmaster($node);
my $started = answer($starter);
chmod $mode, $directory or die "chmod: $!";
is($started, $job, 'a start succeeds when its job has begun, whatever becomes of the directory');
is(ended($watcher, $job), 'done', 'the job is done');
is(ask($watcher, 'SELECT count(*) FROM residency_jobs'), 8, 'and eight are remembered');

# --- a job's file is the last of its files to be removed
SKIP:
{
	# inotify_init1() and inotify_add_watch()
	my %calls = (x86_64 => [ 294, 254 ], aarch64 => [ 26, 27 ]);
	my ($machine) = (POSIX::uname())[4];
	skip "no numbers of system calls for $machine", 1 if !$calls{$machine};
	my ($oldest) = ask($watcher, $list) =~ /^(\d+)/;
	my $inotify = syscall($calls{$machine}[0], 0);
	die "inotify: $!" if $inotify < 0 || syscall($calls{$machine}[1], $inotify, $directory, 0x200) < 0;
	open(my $events, '<&=', $inotify) or die "open: $!";
	ended($watcher, ask($starter, q(SELECT residency_restore_start('small'))));
	sysread($events, my $read, 65536) or die "read: $!";
	my @removed;
	while ($read ne '')
	{
		(my $length, $read) = unpack('x12 L a*', $read);
		push @removed, unpack('Z*', substr($read, 0, $length, ''));
	}
	is(join(' ', grep { /^pgsql_tmp\.job\.$oldest\b/ } @removed), "pgsql_tmp.job.$oldest.names pgsql_tmp.job.$oldest",
		'the names of a job go before it: they are found by its number');
}

# --- a file without a job's state counts neither as a job nor as a number
my $before = ask($watcher, $list);
my ($newest) = $before =~ /(\d+)$/;
append_to_file("$directory/pgsql_tmp.job." . ($newest + $_), '') for 1 .. 3;
append_to_file("$directory/pgsql_tmp.job." . ($newest + 2) . '.names', 'x');
$job = ask($starter, q(SELECT residency_restore_start('small')));
ended($watcher, $job);
is(ask($watcher, $list), $before =~ s/^\d+,//r . ",$job", 'empty files push no job out');
is(join(' ', grep { !/\.$job(\.names)?$/ } glob("$directory/pgsql_tmp.job.{" . join(',', map { $newest + $_ } 1 .. 3) . '}*')), '', 'and are removed');
copy("$directory/pgsql_tmp.job.$job", "$directory/pgsql_tmp.job.2147483646") or die "copy: $!";
is(ask($starter, q(SELECT residency_restore_start('small'))), $job + 1, 'nor does a file under another number than its own');
ended($watcher, $job + 1);

# --- a session killed while it starts a job: that job has ended, even while the next one starts
$job = begin_start($node, $starter, $watcher);
my $killed = $starter->{pid};
kill 'KILL', $killed;
until_true('the killed start is seen', sub { ask($watcher, "SELECT state FROM residency_jobs WHERE job = $job") eq 'interrupted'; });
kill 'CONT', postmaster($node);
until_true('the server ends its sessions', sub { !kill 0, $watcher->{pid}; });
$_->{psql}->kill_kill for ($starter, $watcher, $other);
come_true($node, "SELECT state = 'interrupted' FROM residency_jobs WHERE job = $job") or die 'the server does not come back';
($starter, $watcher) = (session($node), session($node));
my $next = begin_start($node, $starter, $watcher);
is(ask($watcher, "SELECT string_agg(state, ',' ORDER BY job) FROM residency_jobs WHERE job IN ($job, $next)"), 'interrupted,starting',
	'a job whose starter was killed is over, also while the next one starts');
kill 'CONT', postmaster($node);
is(answer($starter), $next, 'which it does');
is(ended($watcher, $next), 'done', 'and is done');
# 128 bytes for each segment after the job
my $without_plan = 2048 + 128 * ask($watcher, "SELECT segments FROM residency_jobs WHERE job = $job");
is(-s "$directory/pgsql_tmp.job.$job", $without_plan, 'and has removed the plan of the killed one');
$_->{psql}->kill_kill for ($starter, $watcher);

# --- a start is canceled before its worker runs: no later job gets its number, or that worker would take the job for its own
$node->append_conf('postgresql.conf', 'post_auth_delay = 3');
$node->restart;
my ($first, $second) = (session($node), session($node));
my $why;
for (1 .. 5)
{
	begin($first, q(SELECT residency_restore_start('small')));
	until_true('a worker is on its way', sub {
		$job = ask($second, q(SELECT max(job) FROM residency_jobs WHERE state = 'starting'));
		return $job ne '' && grep { command($_) =~ /^postgres: starts: pg_residency restore \(job $job\)/ } glob('/proc/[0-9]*');
	});
	ask($second, "SELECT pg_cancel_backend($first->{pid})");
	$why = answer($first);
	last if ask($second, "SELECT count(*) FROM residency_jobs WHERE job = $job") eq '0';
	diag('that came too late, again');
	ended($second, $job);
}
like($why, qr/canceling statement due to user request/, 'a start is canceled while its worker is on its way');
$next = ask($second, q(SELECT residency_restore_start('small')));
cmp_ok($next, '>', $job, 'the next job has a number of its own');
is(ended($second, $next), 'done', 'and is done');
is(ask($second, "SELECT message FROM residency_jobs WHERE job = $next"), '', 'without a word');
$_->{psql}->kill_kill for ($first, $second);
$node->append_conf('postgresql.conf', 'post_auth_delay = 0');
$node->restart;

# --- the file with the last number: cut off, with the largest number, missing
$starter = session($node);
my $lock = "$directory/pgsql_tmp.lock";
truncate($lock, 16) or die "truncate: $!";
is(ask($starter, q(SELECT residency_restore_start('small'))), $next + 1, 'without a note the files of the jobs have the last number');
ended($starter, $next + 1);
open(my $file, '+<:raw', $lock) or die "open: $!";
seek($file, 16, 0) or die "seek: $!";
print $file pack('l', 2147483645);
close($file) or die "close: $!";
is(ask($starter, q(SELECT residency_restore_start('small'))), '2147483646', 'the last number');
is(ended($starter, 2147483646), 'done', 'is as good as any');
like(ask($starter, q(SELECT residency_restore_start('small'))), qr/ERROR:  out of job numbers\nHINT:  Stop the server and remove the files "pg_residency\/pgsql_tmp\*"\.$/,
	'after it there is none');
is(ask($starter, 'SELECT count(*) FROM residency_jobs'), 8, 'which pushes no job out');
$starter->{psql}->kill_kill;
$node->stop;
unlink(glob("$directory/pgsql_tmp*"));
$node->start;
is(restore($node, 'small'), 1, 'without these files numbers begin again');

is(signals($node, $killed), '', 'no process ended by a signal, but the one that was killed');
$node->stop;
done_testing();
