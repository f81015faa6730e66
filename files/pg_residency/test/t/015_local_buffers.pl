# Random calls that write, read, dirty and evict the local buffers of a temporary table, between random changes of its rows, with
# savepoints, cursors, errors, timeouts and cancels.  A plain table, changed by the same statements in the same session, has the same
# rows at any time.  LOCAL_BUFFERS_SEED repeats a run, LOCAL_BUFFERS_CALLS makes it longer.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/..";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest qw(session begin answer ask signals);
use Test::More;
use Time::HiRes qw(sleep time);

my $seed = $ENV{LOCAL_BUFFERS_SEED} || int(time * 1000) % 1_000_000_007;
my $calls = $ENV{LOCAL_BUFFERS_CALLS} || 250;
srand($seed);
note("LOCAL_BUFFERS_SEED=$seed LOCAL_BUFFERS_CALLS=$calls");

sub any { return $_[ rand @_ ]; }
sub chance { return rand() < $_[0]; }

my $node = PostgreSQL::Test::Cluster->new('local');
$node->init(extra => ['--data-checksums']);
$node->append_conf('postgresql.conf', "autovacuum = off\nfsync = off\n");
if ($node->pg_version >= 18)
{
	my $method = any(qw(sync worker));
	$node->append_conf('postgresql.conf', "io_method = $method\n");
	note("io_method = $method");
}
$node->start;
my $has_amcheck = $node->safe_psql('postgres', "CREATE EXTENSION pg_residency; SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'");
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck') if $has_amcheck;
my $watcher = session($node);

# of the round
my ($session, $next_id, $savepoints, $in_transaction, $cursor, $serial, @history);
my %counted = (calls => 0, errors => 0, canceled => 0, pinned => 0);

sub failed
{
	my ($why) = @_;
	diag("LOCAL_BUFFERS_SEED=$seed: $why\nthe last statements:\n" . join("\n", @history[ -($#history < 40 ? @history : 40) .. -1 ]));
	die $why;
}

sub run
{
	my ($sql) = @_;
	push @history, $sql;
	my $answer = ask($session, $sql);
	push @history, "-- $answer" if $answer =~ /ERROR/;
	return $answer;
}

sub must
{
	my ($sql) = @_;
	my $answer = run($sql);
	failed("unexpected: $answer") if $answer =~ /ERROR|FATAL|PANIC|WARNING/;
	return $answer;
}

# also while a timeout may end it
sub insist
{
	my ($sql) = @_;
	my $answer;
	for (1 .. 100)
	{
		$answer = run($sql);
		recover() if $answer =~ /current transaction is aborted/; # by the timeout, in the attempt before
		last if $answer !~ /canceling statement|current transaction is aborted/;
	}
	# a ROLLBACK that the timeout ended when it had done its work
	return if $answer =~ /^WARNING:  there is no transaction in progress$/m;
	failed("unexpected: $answer") if $answer =~ /ERROR|FATAL|PANIC|WARNING/;
	return;
}

# the cursors end with the savepoint in which they were declared
sub rolled_back_to
{
	my ($depth) = @_;
	$savepoints = $depth;
	undef $cursor if defined $cursor && $cursor >= $depth;
	return;
}

sub recover
{
	if ($savepoints > 0 && chance(0.7))
	{
		insist("ROLLBACK TO s$savepoints");
		rolled_back_to($savepoints);
	}
	elsif ($in_transaction)
	{
		insist('ROLLBACK');
		($in_transaction, $savepoints, $cursor) = (0, 0, undef);
	}
	return;
}

# the statements for both tables
sub change
{
	my $n = any(1, 7, 60, 400);
	my $k = int(rand(97)) + 1;
	my $filler = chance(0.2) ? 'repeat(md5(i::text), 90)' : "repeat('x', 300)";
	my $from = $next_id;
	$next_id += $n;
	$serial++;
	return any(
		"INSERT INTO %s SELECT i, i % 13, $filler FROM generate_series($from, $from + $n - 1) i",
		"INSERT INTO %s SELECT i, i % 13, $filler FROM generate_series($from, $from + $n - 1) i",
		"UPDATE %s SET v = v + $serial WHERE id % $k = 3",
		"UPDATE %s SET v = -v",
		"UPDATE %s SET filler = filler || 'a$serial' WHERE id % $k = 0",
		"DELETE FROM %s WHERE id % $k = 1",
		"DELETE FROM %s WHERE id < $next_id - 3000",
		chance(0.15) ? 'TRUNCATE %s' : "DELETE FROM %s WHERE id % $k = 2");
}

my $blocks = "pg_relation_size('t') / 8192";
sub call
{
	my $relation = any("'t'", "'t'", "'t_pkey'");
	my $dependents = any('true', 'false');
	my $order = any('true', 'true, ' . int(rand(1e9)), 'false');
	$order .= ', NULL' if $order !~ /,/;
	return any(
		'pg_flush_local_buffers() >= 0 AND pg_dirtied_local_buffers() = 0 AND pg_flush_local_buffers() = 0',
		"pg_read_temp_relation('t', $order, false) = $blocks",
		"pg_read_temp_relation($relation, $order, $dependents) >= 0",
		"pg_temp_buffers_dirty('t') = $blocks",
		"pg_temp_buffers_dirty($relation, $dependents) >= 0 AND pg_dirtied_local_buffers() <= pg_allocated_local_buffers()",
		"pg_evict_local_buffers($relation, $dependents) >= 0",
		"pg_evict_local_buffers('t', true) >= 0 AND pg_evict_local_buffers('t', true) = 0");
}

sub tables
{
	my ($change) = @_;
	return map { sprintf($change =~ s/% (?=\d)/%% /gr, $_) } any([ 't', 'p' ], [ 'p', 't' ])->@*;
}

# changes and calls in one statement, which all fail or none
sub statement
{
	my ($last) = @_;
	my @parts;
	for (1 .. 1 + int(rand(3)))
	{
		my ($one, $other) = tables(change());
		push @parts, $one, (chance(0.7) ? 'ASSERT ' . call() : ()), $other;
		push @parts, 'ASSERT ' . call() if chance(0.5);
	}
	push @parts, $last if $last;
	my $body = join('; ', @parts);
	# or in a subtransaction of its own
	$body = "BEGIN $body; RAISE EXCEPTION 'undone'; EXCEPTION WHEN raise_exception THEN NULL; END" if !$last && chance(0.15);
	return "DO \$do\$ BEGIN $body; END \$do\$";
}

sub settle
{
	my ($answer, @expected) = @_;
	return if $answer !~ /ERROR|FATAL|PANIC/;
	$counted{errors}++;
	push @expected, qr/cannot evict the local buffers of relation "\w+"/, qr/being used by active queries in this session/ if defined $cursor;
	failed("unexpected: $answer") if !grep { $answer =~ $_ } @expected;
	$counted{pinned}++ if $answer =~ /cannot evict/;
	$counted{canceled}++ if $answer =~ /canceling statement/;
	recover();
	return;
}

sub compare
{
	must('SET enable_seqscan = ' . any('on', 'off'));
	my $different = must(q(SELECT count(*) FROM (
		(TABLE t EXCEPT ALL TABLE p) UNION ALL (TABLE p EXCEPT ALL TABLE t)) d));
	failed("$different rows are different") if $different ne '0';
	must('SET enable_seqscan = off');
	my $by_index = must(q(SELECT (SELECT md5(string_agg(t::text, ',' ORDER BY id)) FROM t WHERE id > -1)
		IS NOT DISTINCT FROM (SELECT md5(string_agg(p::text, ',' ORDER BY id)) FROM p WHERE id > -1)));
	failed('by the index they are different') if $by_index ne 't';
	must('RESET enable_seqscan');
	return if !$has_amcheck;
	must("SELECT bt_index_check('t_pkey', true)");
	my $corrupt = must("SELECT * FROM verify_heapam('t')");
	failed("corrupt: $corrupt") if $corrupt ne '';
	return;
}

# from both cursors, which return the same rows
sub fetch
{
	my ($n) = @_;
	my ($temporary, $plain) = map { must("FETCH $n FROM c_$_") } qw(t p);
	failed('the cursors return different rows') if $temporary ne $plain;
	return $temporary;
}

my @actions = (
	[ 30, sub { settle(run(statement())); } ],
	[ 25, sub {
		my $call = call();
		my $answer = run("SELECT $call");
		failed("$call: $answer") if $answer !~ /^t$|ERROR/;
		settle($answer);
	} ],
	[ 6, sub { settle(run(statement('PERFORM 1 / 0')), qr/division by zero/); } ],
	# a timeout, and a cancel by another session, in the middle
	[ 10, sub {
		my $body = statement('PERFORM pg_evict_local_buffers(\'t\')');
		must('SET statement_timeout = ' . (1 + int(rand(40))));
		settle(run($body), qr/canceling statement due to statement timeout/);
		insist('SET statement_timeout = 0');
	} ],
	[ 8, sub {
		my $body = statement() =~ s/END \$do\$$/FOR i IN 1 .. 20 LOOP PERFORM pg_temp_buffers_dirty('t', true); PERFORM pg_flush_local_buffers(); END LOOP; END \$do\$/r;
		push @history, "$body -- and a cancel";
		begin($session, $body);
		sleep(rand(0.06));
		ask($watcher, "SELECT pg_cancel_backend($session->{pid})");
		settle(answer($session), qr/canceling statement due to user request/);
		# the cancel may arrive later
		settle(run('SELECT pg_sleep(0)'), qr/canceling statement due to user request/);
	} ],
	[ 12, sub { return if $in_transaction; must('BEGIN'); $in_transaction = 1; } ],
	[ 8, sub { return if !$in_transaction || $savepoints > 4; $savepoints++; must("SAVEPOINT s$savepoints"); } ],
	[ 6, sub {
		return if !$savepoints;
		my $to = 1 + int(rand($savepoints));
		must("ROLLBACK TO s$to");
		rolled_back_to($to);
	} ],
	[ 3, sub { return if !$savepoints; must("RELEASE s$savepoints"); $savepoints--; $cursor = $savepoints if defined $cursor && $cursor > $savepoints; } ],
	[ 5, sub {
		return if !$in_transaction;
		must(any('COMMIT', 'COMMIT', 'ROLLBACK'));
		($in_transaction, $savepoints, $cursor) = (0, 0, undef);
	} ],
	# cursors in the same order over both
	[ 14, sub {
		return if !$in_transaction || defined $cursor;
		must('SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off');
		must("DECLARE c_$_ NO SCROLL CURSOR FOR SELECT id, v, length(filler) FROM $_ WHERE id > 0 ORDER BY id") for qw(t p);
		$cursor = $savepoints;
		must('SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on; SET LOCAL enable_bitmapscan = on');
		return if fetch(1) eq '';
		must('SAVEPOINT pinned');
		my $answer = run("SELECT pg_evict_local_buffers('t', " . any('true', 'false') . ')');
		failed("evicted under a cursor: $answer") if $answer !~ /ERROR:  cannot evict the local buffers of relation "t/;
		$counted{pinned}++;
		must('ROLLBACK TO pinned; RELEASE pinned');
	} ],
	[ 12, sub { fetch(any(1, 10, 200, 'ALL')) if defined $cursor; } ],
	[ 2, sub { return if !defined $cursor; must('CLOSE c_t; CLOSE c_p'); undef $cursor; } ],
	# other tables come and go
	[ 4, sub {
		settle(run(any(
			'CREATE TEMPORARY TABLE other AS SELECT i, repeat(\'o\', 500) AS f FROM generate_series(1, 1000) i; SELECT pg_temp_buffers_dirty(\'other\'); DROP TABLE other',
			'CREATE TEMPORARY TABLE brief ON COMMIT DROP AS SELECT i FROM generate_series(1, 5000) i',
			'REINDEX TABLE t',
			'ANALYZE t')), qr/relation "brief" already exists/);
	} ],
	[ 3, sub { return if $in_transaction; must(any('VACUUM t', 'VACUUM FULL t', 'CLUSTER t USING t_pkey', 'VACUUM (FREEZE) t')); } ],
	[ 8, sub { compare(); } ]);
my $weights = 0;
$weights += $_->[0] for @actions;

for my $buffers (100, any(100, 300), 1024)
{
	$session = session($node);
	($next_id, $savepoints, $in_transaction, $cursor, $serial, @history) = (1, 0, 0, undef, 0);
	must("SET temp_buffers = $buffers");
	must('DROP TABLE IF EXISTS p') if $counted{calls};
	must("CREATE TEMPORARY TABLE t (id int PRIMARY KEY, v int, filler text)");
	must("CREATE TABLE p (id int PRIMARY KEY, v int, filler text)");
	must("ALTER TABLE $_ ALTER filler SET STORAGE EXTERNAL") for qw(t p);
	for (1 .. $calls)
	{
		my $at = rand($weights);
		my $action = 0;
		$at -= $actions[ $action++ ][0] while $at >= $actions[$action][0];
		$actions[$action][1]->();
		$counted{calls}++;
	}
	must('COMMIT') if $in_transaction;
	($in_transaction, $savepoints, $cursor) = (0, 0, undef);
	compare();
	# and after all of it comes from the file
	must("SELECT pg_flush_local_buffers()");
	failed('something is still pinned') if must("SELECT pg_evict_local_buffers('t', true) >= 0") ne 't';
	compare();
	pass("$calls actions with $buffers buffers: the same rows, " . must('SELECT count(*) FROM t'));
	begin($session, '\q');
	$session->{psql}->finish;
}
cmp_ok($counted{$_}, '>', 0, "with $_: $counted{$_}") for qw(errors canceled pinned);
is(signals($node), '', 'no process crashed');
unlike(slurp_file($node->logfile), qr/page verification failed|leak/, 'no checksum was wrong, nothing leaked');
$node->stop;
done_testing();
