# Each device has a window of its own, and waits for no other.  PG_RESIDENCY_DEVICE is an empty directory
# on a device of its own.
use strict;
use warnings FATAL => 'all';
use Time::HiRes qw(usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $directory = $ENV{PG_RESIDENCY_DEVICE};
plan skip_all => 'no device of its own: PG_RESIDENCY_DEVICE is not set' if !defined $directory;

my $node = PostgreSQL::Test::Cluster->new('devices');
$node->init;
$node->append_conf('postgresql.conf', "shared_buffers = 1MB\nautovacuum = off");
$node->start;

# a tablespace requires an empty directory, without lost+found
mkdir "$directory/space" or die "$directory/space: $!";
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency');
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$directory/space'");
my %path;
for my $space (qw(pg_default elsewhere))
{
	$node->safe_psql('postgres', <<"SQL");
CREATE TABLE in_$space (a int, filler text) WITH (fillfactor = 10) TABLESPACE $space;
ALTER TABLE in_$space ALTER filler SET STORAGE PLAIN;
INSERT INTO in_$space SELECT i, repeat('x', 700) FROM generate_series(1, 8192) i;
SQL
	$path{$space} = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('in_$space')");
}
$node->safe_psql('postgres', "CHECKPOINT; SELECT FROM residency_snapshot('warm')");
isnt((stat $path{pg_default})[0], (stat $path{elsewhere})[0], 'the tablespace is on another device');

# MiB of a table in the page cache, by fincore(1)
sub resident
{
	my $bytes = `fincore --raw --noheadings --bytes --output RES "$path{$_[0]}"`;
	die "fincore(1) of util-linux does not count $path{$_[0]}" if $? != 0 || $bytes !~ /^\s*(\d+)/;
	return $1 / 2**20;
}

for my $options ('"aggressive": false', '"aggressive": true', '"max_io_pressure": 100')
{
	my ($here, $there) = (0, 0);
	my $newest = '(SELECT max(job) FROM residency_jobs)';
	for my $attempt (1 .. 3)	# on a busy host one of the devices may be delayed
	{
		$node->safe_psql('postgres', "SELECT FROM residency_evict('in_$_')") for keys %path;
		cmp_ok(resident($_), '<', 4, "$options: in_$_ is cold") for $attempt == 1 ? keys %path : ();
		my %before = map { $_ => resident($_) } keys %path;

		# 128 MiB at 16 MiB per second: one after the other, one would be complete before the other has begun. Which of them
		# is ahead depends on the devices and their load.
		$node->safe_psql('postgres', "SELECT residency_restore_start('warm', '{\"rate\": 16777216, $options}')");
		for (1 .. 1500)
		{
			($here, $there) = map { resident($_) - $before{$_} } qw(pg_default elsewhere);
			last if ($here > 1 && $there > 1) || $here + $there > 120;
			usleep(20_000);
		}
		last if $here > 1 && $there > 1 && $here < 56 && $there < 56;
		diag(sprintf('%s: %.0f MiB of the one device and %.0f MiB of the other', $options, $here, $there));
		$node->poll_query_until('postgres', "SELECT state = 'done' FROM residency_jobs WHERE job = $newest");
	}
	cmp_ok($here, '>', 1, sprintf('%s: %.0f MiB of the one device', $options, $here));
	cmp_ok($there, '>', 1, sprintf('%s: and %.0f MiB of the other, side by side', $options, $there));
	cmp_ok($_, '<', 56, "$options: before either is complete") for $here, $there;
	my $counts;
	for (1 .. 3)	# the next job loads the pages that the kernel reclaimed before the count
	{
		$node->poll_query_until('postgres', "SELECT state = 'done' FROM residency_jobs WHERE job = $newest");
		$counts = $node->safe_psql('postgres', "SELECT over_budget + gone + failed, resident >= 0.95 * wanted FROM residency_jobs WHERE job = $newest");
		last if $counts eq '0|t';
		$node->safe_psql('postgres', "SELECT residency_restore_start('warm')");
	}
	is($counts, '0|t', "$options: all of both");
}

# a job is ended while both devices are busy
$node->safe_psql('postgres', "SELECT FROM residency_evict('in_$_')") for keys %path;
$node->safe_psql('postgres', q(SELECT residency_cancel(residency_restore_start('warm', '{"rate": 8388608}'))));
$node->poll_query_until('postgres', 'SELECT state = \'canceled\' FROM residency_jobs ORDER BY job DESC LIMIT 1') or die 'not canceled';
cmp_ok(resident('pg_default') + resident('elsewhere'), '<', 64, 'a canceled job leaves both');

$node->safe_psql('postgres', 'DROP TABLE in_elsewhere');
$node->safe_psql('postgres', 'DROP TABLESPACE elsewhere');
rmdir "$directory/space" or die "$directory/space: $!";
$node->stop;
done_testing();
