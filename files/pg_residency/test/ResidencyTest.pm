# Helpers of the tests in t/.
package ResidencyTest;

use strict;
use warnings;

use Exporter qw(import);
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(cached there start_restore job last_job wait_for_job come_true restore wide_table signals crc32c craft_snapshot SUMS);
our @EXPORT_OK = qw(session begin answer ask until_true postmaster begin_start);

# of a job that is done
use constant SUMS => 'settled = wanted AND wanted = resident + over_budget + gone + failed';

use constant BLOCK => 8192;
use constant CACHESTAT => 451;    # on every architecture

sub main_fork
{
	my ($node, $relation, $database) = @_;
	return $node->data_dir . '/' . $node->safe_psql($database || 'postgres', "SELECT pg_relation_filepath('$relation')");
}

# blocks of a relation's main fork in the page cache, by fincore(1), which shares no code with the extension
sub cached
{
	my $path = main_fork(@_);
	my $bytes = `fincore --bytes --noheadings --output RES '$path'`;
	die "fincore failed on $path" if $? != 0;
	return $bytes / BLOCK;
}

# The same with those that the kernel has reclaimed since, which cachestat(2) counts: DAMON takes file pages that are idle for a minute.
# An eviction on request leaves no trace of this kind.  Before Linux 6.5 as cached().
sub there
{
	my $path = main_fork(@_);
	my ($whole, $counts) = (pack('Q2', 0, 0), pack('Q5', (0) x 5));
	open my $file, '<:raw', $path or die "$path: $!";
	return cached(@_) if syscall(CACHESTAT, fileno($file), $whole, $counts, 0) != 0;
	my ($in_cache, undef, undef, $evicted) = unpack('Q5', $counts);
	return ($in_cache + $evicted) * POSIX::sysconf(POSIX::_SC_PAGESIZE()) / BLOCK;
}

# a table of a row in each block
sub wide_table
{
	my ($name, $blocks) = @_;
	return "CREATE TABLE $name (a int, filler text) WITH (fillfactor = 10, autovacuum_enabled = off);
		ALTER TABLE $name ALTER filler SET STORAGE PLAIN;
		INSERT INTO $name SELECT i, repeat('x', 700) FROM generate_series(1, $blocks) i;\n";
}

sub start_restore
{
	my ($node, $name, $options) = @_;
	$options ||= '{}';
	return $node->safe_psql('postgres', "SELECT residency_restore_start('$name', '$options')");
}

sub job
{
	my ($node, $job, $columns) = @_;
	return $node->safe_psql('postgres', "SELECT $columns FROM residency_jobs WHERE job = $job");
}

sub last_job
{
	my ($node, $columns) = @_;
	return $node->safe_psql('postgres', "SELECT $columns FROM residency_jobs ORDER BY job DESC LIMIT 1");
}

sub wait_for_job
{
	my ($node, $job, $states) = @_;
	$states ||= "'done', 'failed', 'canceled', 'interrupted'";
	come_true($node, "SELECT state IN ($states) FROM residency_jobs WHERE job = $job")
	  or die "job $job comes to no state of $states: " . job($node, $job, 'state, message');
	return $job;
}

# polls more often than poll_query_until, and also while a crashed server restarts
sub come_true
{
	my ($node, $sql) = @_;
	for (my $until = time + 120; time < $until; sleep 0.05)
	{
		my $out = '';
		eval { $node->psql('postgres', $sql, stdout => \$out); };
		return 1 if $out eq 't';
	}
	return 0;
}

sub restore
{
	my ($node, $name, $options) = @_;
	return wait_for_job($node, start_restore($node, $name, $options));
}

# A session that stays connected while no new one is accepted.
sub session
{
	my ($node) = @_;
	my %session = (in => '', out => '', err => '');
	$session{psql} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err}, IPC::Run::timeout(600));
	$session{pid} = ask(\%session, 'SELECT pg_backend_pid()');
	return \%session;
}

sub begin
{
	my ($session, $sql) = @_;
	$session->{out} = $session->{err} = '';
	$session->{in} .= "$sql;\n\\echo (end)\n";
	$session->{psql}->pump_nb;
	return;
}

# its answer, or its error
sub answer
{
	my ($session) = @_;
	$session->{psql}->pump until $session->{out} =~ /\(end\)\n/;
	my $answer = $session->{out} =~ s/\n?\(end\)\n//r;
	# an error arrives through another pipe than the answer
	$session->{psql}->pump_nb if $answer eq '';
	return $answer ne '' ? $answer : $session->{err};
}

sub ask
{
	my ($session, $sql) = @_;
	begin($session, $sql);
	return answer($session);
}

sub until_true
{
	my ($what, $test) = @_;
	for (my $until = time + 180; time < $until; sleep 0.02)
	{
		return if $test->();
	}
	die "never: $what";
}

sub postmaster
{
	my ($node) = @_;
	my ($pid) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	return $pid;
}

# the postmaster is stopped, so the session waits for a worker
sub begin_start
{
	my ($node, $session, $watcher) = @_;
	kill 'STOP', postmaster($node);
	begin($session, q(SELECT residency_restore_start('small')));
	until_true('the session waits for the worker',
		sub { ask($watcher, "SELECT count(*) FROM pg_stat_activity WHERE pid = $session->{pid} AND wait_event_type = 'Extension'") eq '1'; });
	return ask($watcher, 'SELECT max(job) FROM residency_jobs');
}

# lines of the log about a process that ended by a signal, except signals of the test
sub signals
{
	my ($node, @sent) = @_;
	my @lines = grep { /terminated by signal|TRAP:|PANIC:/ } split /\n/, slurp_file($node->logfile);
	for my $pid (@sent)
	{
		@lines = grep { !/PID $pid\) was terminated by signal 9/ } @lines;
	}
	return join "\n", @lines;
}

my @crc_table;

sub crc32c
{
	my ($data) = @_;
	my $crc = 0xffffffff;
	if (!@crc_table)
	{
		for my $c (0 .. 255)
		{
			$c = ($c >> 1) ^ (($c & 1) ? 0x82f63b78 : 0) for 1 .. 8;
			push @crc_table, $c;
		}
	}
	$crc = ($crc >> 8) ^ $crc_table[($crc ^ $_) & 0xff] for unpack('C*', $data);
	return $crc ^ 0xffffffff;
}

# A snapshot file with a valid checksum, and any content.
sub craft_snapshot
{
	my ($file, %of) = @_;
	my $body = $of{body};
	my $header = pack('a8 V V Q< V V V V V V q< V V Q< Q< Q< Q< Q< Q< V a64 a256',
		"PGRESID\n", 1, 512, $of{system_identifier}, $of{timeline} || 1, $of{server_version}, 8192, $of{segment_blocks} || 131072,
		4096, 0, 0, $of{generation} || 1, $of{segments}, $of{blocks}, $of{wanted}, $of{wanted}, 0, 0, length($body), crc32c($body),
		$of{name}, $of{origin});
	$header .= "\0" x (508 - length($header));
	open my $f, '>:raw', $file or die "$file: $!";
	print $f $header . pack('V', crc32c($header)) . $body;
	close $f or die "$file: $!";
	chmod 0600, $file;
	return;
}

1;
