// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

// UpdateOptions configure [Updates]. A dataplane needs only New.
type UpdateOptions struct {
	// New returns a new dataplane, also in the processes that are killed.
	New func(t testing.TB) interception.Dataplane
	// Other returns another dataplane, which takes over from the first, and the first from it: each
	// update then goes from one to the other. Nil means that there is no other.
	Other func(t testing.TB) interception.Dataplane
	// Kills is how many processes are killed on each way from plan to plan, at instants spread over
	// the way's duration; zero means 1. With more, each way is first completed once.
	Kills int
	// Ways is the number of ways; zero means all: 20, or 50 with Other.
	Ways int
	// Seed determines the instants, and the order of the ways.
	Seed uint64
}

// Updates tests that a dataplane lets no connection bypass the proxy during an update from one plan
// to another, whatever happens to it. A pod goes all ways between REDIRECT and TPROXY, each with
// DNS and without. Meanwhile, connections that both plans capture are opened all the time, out, in
// and within the pod, of both families, and so are DNS queries over UDP and TCP. The processes that
// apply the plans are killed (SIGKILL), about half of them together with their child processes.
// After each kill, the pod captures what both plans capture, or drops it ([proof.Covers]), and the
// next Apply, of the new plan or of the old, has the same result as in an empty pod.
//
// Its package needs a TestMain that calls [RunTests]. The killed processes are copies of the test's
// program that run the same test again, up to the call of Updates: the test should do little before
// that.
func Updates(t *testing.T, o UpdateOptions) {
	t.Helper()
	if task, is := victim.Task(); is {
		o.beVictim(t, task)
		return
	}
	u := newUpdating(t, o)
	if u.Kills > 1 {
		u.goAll(func(w way) { u.run(w, "", victim.Ending{}) })
	}
	for pass := range u.Kills {
		u.goAll(func(w way) { u.kill(w, pass) })
	}
	t.Logf("%s: processes were%s\nafter kills there were%s\nprobes were%s", u.names(), u.processes, u.stood, u.probed)
}

// updateTask is the task of a victim.
type updateTask struct {
	Namespace string
	By, Plan  int
}

// dataplanes returns one or both.
func (o UpdateOptions) dataplanes(t testing.TB) []interception.Dataplane {
	t.Helper()
	if o.Other == nil {
		return []interception.Dataplane{o.New(t)}
	}
	return []interception.Dataplane{o.New(t), o.Other(t)}
}

// beVictim applies a plan on command.
func (o UpdateOptions) beVictim(t testing.TB, text string) {
	t.Helper()
	var task updateTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		t.Fatal(err)
	}
	plans := updatePlans(t)
	ns, err := interception.OpenNetns(task.Namespace, interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	dataplane := o.dataplanes(t)[task.By]
	if err := victim.Serve(func() error { return dataplane.Apply(t.Context(), ns, plans[task.Plan].Plan) }); err != nil {
		t.Fatal(err)
	}
}

// updating is a pod during updates.
type updating struct {
	UpdateOptions
	testing.TB

	pod        *Pod
	ns         *interception.Netns
	dataplanes []interception.Dataplane
	plans      []updatePlan
	probes     []Probe
	fresh      map[corner]string // the dump of a namespace with only this plan
	took       map[way]time.Duration
	typical    time.Duration
	proved     map[string]bool // remains that are proved already
	random     *rand.Rand

	processes, stood, probed *counts
}

func newUpdating(t testing.TB, o UpdateOptions) *updating {
	t.Helper()
	pod := istioPod()
	pod.DropAfter = usuallyAnswered
	u := &updating{
		UpdateOptions: o, TB: t, pod: NewPod(t, pod), dataplanes: o.dataplanes(t), fresh: map[corner]string{},
		plans: updatePlans(t), took: map[way]time.Duration{}, proved: map[string]bool{}, random: rand.New(rand.NewPCG(o.Seed, 0)),
		processes: newCounts(), stood: newCounts(), probed: newCounts(),
	}
	u.Kills = max(u.Kills, 1)
	var err error
	if u.ns, err = interception.OpenNetns(u.pod.Path(), interception.NetnsOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.ns.Close() })
	u.expect()
	for _, c := range corners(len(u.dataplanes), len(u.plans)) {
		u.apply(c)
		u.fresh[c] = Kernel{}.Dump(t, u.ns)
		if err := u.dataplanes[c.by].Remove(t.Context(), u.ns, updateOwner); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// expect computes with package trace what each plan does with each probe.
func (u *updating) expect() {
	packets := parsed(u, updatePackets())
	for _, packet := range packets {
		u.probes = append(u.probes, probeOf(packet))
	}
	for i, plan := range u.plans {
		world, err := u.pod.World(plan.Plan)
		if err != nil {
			u.Fatal(err)
		}
		for _, packet := range packets {
			port, err := capturedAt(world, packet)
			if err != nil {
				u.Fatal(err)
			}
			u.plans[i].ports = append(u.plans[i].ports, port)
		}
	}
}

// both returns the probes that both plans of a way capture.
func (u *updating) both(w way) []updateProbe {
	var both []updateProbe
	for i, probe := range u.probes {
		from, to := u.plans[w.from.plan].ports[i], u.plans[w.to.plan].ports[i]
		if from != 0 && to != 0 {
			both = append(both, updateProbe{probe, []uint16{from, to}})
		}
	}
	return both
}

func (u *updating) apply(c corner) {
	if err := u.pod.Apply(u.Context(), u.dataplanes[c.by], u.plans[c.plan].Plan); err != nil {
		u.Fatal(err)
	}
}

// names returns those of all plans, and of the dataplanes.
func (u *updating) names() string {
	var names []string
	for _, plan := range u.plans {
		names = append(names, plan.name)
	}
	return strings.Join(names, ", ")
}

// name returns the name of a corner.
func (u *updating) name(c corner) string {
	if len(u.dataplanes) == 1 {
		return u.plans[c.plan].name
	}
	return fmt.Sprintf("%s by dataplane %d", u.plans[c.plan].name, c.by+1)
}

// goAll runs all ways, and stops at a failure.
func (u *updating) goAll(along func(w way)) {
	all := ways(len(u.dataplanes), len(u.plans), u.random)
	if u.Ways > 0 {
		all = all[:min(u.Ways, len(all))]
	}
	for _, w := range all {
		if u.Failed() {
			return
		}
		u.apply(w.from)
		along(w)
	}
}

// maxTries is how many processes are started on a way until one is killed: some finish before the
// signal. Each gets less time than the one before.
const maxTries = 20

// kill runs a way until a process was killed on it, in its part of the time that the way takes.
// Afterwards the new plan is in place.
func (u *updating) kill(w way, pass int) {
	for try := range maxTries {
		took, known := u.took[w]
		if !known {
			took = u.typical
		}
		if took == 0 {
			u.run(w, "", victim.Ending{})
			u.apply(w.from)
			continue
		}
		after := time.Duration((float64(pass) + u.random.Float64()) / float64(u.Kills) * float64(took) * math.Pow(0.9, float64(try)))
		o := victim.Ending{When: victim.After(after), Group: u.random.IntN(2) == 0}
		how := fmt.Sprintf(", killed after %v of %v, with what it had started: %t", after, took, o.Group)
		if u.run(w, how, o).Killed || u.Failed() {
			return
		}
		u.apply(w.from)
	}
	u.Errorf("%s to %s: of %d processes none was killed before its end", u.name(w.from), u.name(w.to), maxTries)
}

// run makes a process go a way while probes are sent, and checks what it leaves. Afterwards the new
// plan is in place.
func (u *updating) run(w way, how string, o victim.Ending) victim.End {
	task, err := json.Marshal(updateTask{u.pod.Path(), w.to.by, w.to.plan})
	if err != nil {
		u.Fatal(err)
	}
	process, err := victim.Start(u.Context(), u.Name(), string(task))
	if err != nil {
		u.Fatal(err)
	}
	where := fmt.Sprintf("%s to %s, seed %d%s", u.name(w.from), u.name(w.to), u.Seed, how)
	probing := startProbing(u, u.pod, u.both(w), u.probed)
	end, err := process.Run(o)
	switch {
	case err != nil:
		u.Errorf("%s: %v", where, err)
	case end.Killed:
		u.processes.add("killed")
		u.heal(where, w, probing, o.Group)
	default:
		u.processes.add("at their end")
		u.took[w], u.typical = end.Took, end.Took
	}
	u.holds(where, w.to)
	probing.round(u.Context())
	for _, problem := range probing.stop() {
		u.Errorf("%s: %s", where, problem)
	}
	return end
}

// heal checks what a killed process has left, and applies the new plan, or the old one and then the
// new one. Child processes that were not killed may still be at work: the next Apply must cope with
// that.
func (u *updating) heal(where string, w way, probing *probing, dead bool) {
	if dead {
		u.look(where, w)
		probing.round(u.Context())
	}
	if u.random.IntN(2) == 0 {
		u.apply(w.from)
		u.holds(where+", and back", w.from)
	}
	u.apply(w.to)
}

// look tests that the rules in place let nothing past the proxy that both plans capture.
func (u *updating) look(where string, w way) {
	old, next, left := u.plans[w.from.plan], u.plans[w.to.plan], u.remains()
	if plan := left.inPlace(old, next); plan != "" {
		u.stood.add(plan)
		return
	}
	u.stood.add("something in between")
	question := old.name + next.name + left.String()
	if u.proved[question] {
		return
	}
	u.proved[question] = true
	found, err := left.passes(old.Plan, next.Plan)
	if err != nil || found != "" {
		u.Errorf("%s: does what is left capture what both plans do? %s %v\n%s", where, found, err, left)
	}
}

// holds tests that a plan is in place, and no part of another.
func (u *updating) holds(where string, c corner) {
	if diff := difference("a pod that had nothing", u.fresh[c], "this one", Kernel{}.Dump(u, u.ns)); diff != "" {
		u.Errorf("%s: %s:\n%s", where, u.name(c), diff)
	}
	state, err := u.dataplanes[c.by].Observe(u.Context(), u.ns, updateOwner)
	if err != nil {
		u.Fatal(err)
	}
	if drift := interception.Diff(u.plans[c.plan].Plan, state); drift != nil {
		u.Errorf("%s: %s: drift: %v", where, u.name(c), drift)
	}
}
