# Foreign files in /dev/shm in place of the ledger.  Other clusters of the same user: 007_budget.pl;
# other users: tests/extension/users.py, which needs root.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest qw(:DEFAULT until_true);
use Test::More;
use Time::HiRes qw(time);

plan skip_all => 'needs a /dev/shm of its own, with PG_RESIDENCY_ALONE set' unless $ENV{PG_RESIDENCY_ALONE};

my $file = "/dev/shm/pgfleet.pg_residency.$<";
my $lock = "$file.lock";
my $victim = '/dev/shm/victim';
my $content = 'not to be touched' x 400;

my $node = PostgreSQL::Test::Cluster->new('host');
$node->init;
$node->append_conf('postgresql.conf', "shared_buffers = 1MB\nautovacuum = off\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency; ' . wide_table('wide', 2000) . "CHECKPOINT; SELECT residency_snapshot('warm')");

sub mode
{
	my ($path) = @_;
	my @st = lstat $path or return 'nothing';
	return sprintf '%o, %d link, user %d', $st[2] & 07777, $st[3], $st[4];
}

# restores twice: the table is restored in time
sub restored
{
	my ($what, $message) = @_;
	for (1 .. 2)
	{
		$node->safe_psql('postgres', "SELECT residency_evict('wide')");
		my $began = time;
		my $job = restore($node, 'warm');
		is(job($node, $job, 'state, failed, message'), 'done|0|' . ($message // ''), "restored, $what");
		cmp_ok(time - $began, '<', 150, 'in time');    # a turn is waited for twice as long
	}
	cmp_ok(there($node, 'wide'), '>=', 0.95 * 2000, 'and the table is back, says the kernel');
	return;
}

sub make_victim
{
	unlink $victim;
	open my $f, '>', $victim or die "$victim: $!";
	print $f $content;
	close $f;
	chmod 0600, $victim;
	return;
}

# --- the regular files
unlink $file, $lock;
restored('with nothing in the way');
is(mode($file), "644, 1 link, user $<", 'what is agreed is for all to read, and for its user to write');
is(mode($lock), "600, 1 link, user $<", 'its lock is its user\'s');

# --- foreign files in their place
for my $place ($file, $lock)
{
	my %ways = (
		'a hard link' => sub { link $victim, $place or die "link: $!" },
		'a symbolic link' => sub { symlink $victim, $place or die "symlink: $!" },
		'a link to nothing' => sub { symlink '/dev/shm/nothing', $place or die "symlink: $!" },
		'a FIFO' => sub { system_or_bail('mkfifo', $place) },
		'a directory' => sub { mkdir $place or die "mkdir: $!" },
		'a file for others to write' => sub { append_to_file($place, ''); chmod 0666, $place },
		'a large file' => sub { append_to_file($place, 'x' x 1_000_000); chmod 0644, $place },
		'garbage' => sub { append_to_file($place, pack('C*', map { ($_ * 7919) & 255 } 1 .. 3000)); chmod 0644, $place },
	);
	for my $what (sort keys %ways)
	{
		make_victim();
		unlink $file, $lock;
		my $at = -s $node->logfile;
		$ways{$what}->();
		my ($mode, $size, $link) = (mode($place), -s $place, readlink $place);
		my $name = $place =~ /lock$/ ? 'the lock' : 'the file';
		restored("$what in place of $name",
			$what =~ /garbage/ && $place eq $file ? '' : qq(not coordinated with other clusters of this host: could not use ledger file "$place"));
		is(slurp_file($victim), $content, 'what is behind a link is unchanged');
		is((stat $victim)[2] & 07777, 0600, 'and has its mode') unless $what eq 'nothing';
		ok(!-e '/dev/shm/nothing', 'nothing is made through a link');
		if ($what !~ /garbage|large|others/)
		{
			is(mode($place), $mode, "$what stays");
			is(-s $place, $size, 'as it is');
		}
		my @lines = grep { /pgfleet/ && /LOG:|WARNING:/ } split /\n/, substr slurp_file($node->logfile), $at;
		if ($what !~ /garbage/)
		{
			cmp_ok(scalar @lines, '>=', 1, 'the log says so');
			cmp_ok(scalar @lines, '<=', 2, 'once for a process');
		}
		is($node->safe_psql('postgres', 'SELECT budget_bytes > 0 FROM residency_budget()'), 't', 'a budget is measured');
		-d $place && !-l $place ? rmdir $place : unlink $place;
	}
}
unlink $victim, $file, $lock;
restored('after that');
is(mode($file), "644, 1 link, user $<", 'and the file is made again');

# --- no space for it
unlink $file, $lock;
my ($avail) = `df --output=avail --block-size=1 /dev/shm` =~ /(\d+)\s*$/;
SKIP:
{
	skip 'a large /dev/shm', 8 if $avail > 2**30;
	system_or_bail('fallocate', '--length', $avail, '/dev/shm/filler');
	restored('with /dev/shm full', qq(not coordinated with other clusters of this host: could not use ledger file "$file"));
	like(slurp_file($node->logfile), qr/could not use ledger file "\Q$file\E": No space left on device/, 'the log has the reason');
	unlink '/dev/shm/filler';
	restored('with space again');
	is(-s $file > 0, 1, 'and the file is written');
}

# --- both removed while a restore has the turn: the next one still waits
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->append_conf('postgresql.conf', "shared_buffers = 1MB\nautovacuum = off\n");
$other->start;
$other->safe_psql('postgres', 'CREATE EXTENSION pg_residency; ' . wide_table('wide', 2000) . "CHECKPOINT; SELECT residency_snapshot('warm')");
$_->safe_psql('postgres', "SELECT residency_evict('wide')") for ($node, $other);
my $first = $node->safe_psql('postgres', q(SELECT residency_restore_start('warm', '{"rate": 500000}')));
$node->poll_query_until('postgres', "SELECT state = 'running' FROM residency_jobs WHERE job = $first") or die 'it does not run';
unlink($file, $lock) == 2 or die "unlink: $!";
until_true('the one that has the turn makes the files again', sub { -e $file && -e $lock });
my $second = $other->safe_psql('postgres', "SELECT residency_restore_start('warm')");
$other->poll_query_until('postgres', "SELECT state <> 'starting' FROM residency_jobs WHERE job = $second") or die 'it does not start';
is(job($other, $second, 'state'), 'waiting', 'the other one waits');
like(job($other, $second, 'message'), qr/waiting for the restore of ".*_host_data/, 'and knows for whom');
is(job($node, $first, 'state'), 'running', 'which still runs');
$node->safe_psql('postgres', "SELECT residency_cancel($first)");
$other->poll_query_until('postgres', "SELECT state = 'done' FROM residency_jobs WHERE job = $second") or die 'it has no turn';
ok(1, 'then it has its turn');
is(signals($_), '', 'no process ended by a signal') for ($node, $other);
$_->stop for ($node, $other);
done_testing();
