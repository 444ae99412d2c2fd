// SPDX-License-Identifier: Apache-2.0

package repair_test

import (
	"slices"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/repair"
)

// node returns the policy of the pods below.
func node() repair.Policy {
	return repair.Policy{Label: repair.IstioLabel(), Rules: []repair.Rule{
		{Namespaces: []string{"quiet"}},
		{Namespaces: []string{"marked"}, Verdicts: []repair.Verdict{repair.Broken, repair.Suspect}, Do: []repair.Mode{repair.ModeLabel}},
		{OwnerKinds: []string{"Job"}, Do: []repair.Mode{repair.ModeRepair, repair.ModeEvict}},
		{Do: []repair.Mode{repair.ModeRepair, repair.ModeDelete}},
	}}
}

// podCase is a pod, its finding, and the action under the policy above.
type podCase struct {
	name    string
	pod     change
	verdict repair.Verdict
	reason  repair.Reason
	do      repair.Mode
}

func podCases() []podCase {
	return slices.Concat(othersPods(), endedPods(), validatorPods(), jobPods(), recordedPods(), observedPods(), changedPods(), actedPods())
}

// othersPods are those that are not ours.
func othersPods() []podCase {
	const none, nothing = repair.NotOurs, repair.ModeNothing
	move := func(namespace, name string) change {
		return edit(func(p *repair.Pod) { p.Namespace, p.Name = namespace, name })
	}
	return []podCase{
		{"the own agent, broken", all(failed(), move("istio-system", "istio-cni-node-x7k2p")), none, sidecar.ReasonOwnAgent, nothing},
		{"an excluded namespace, broken", all(failed(), move("kube-system", "dns-0")), none, sidecar.ReasonExcludedNamespace, nothing},
		{
			"an excluded namespace, with a record: the operator excluded it since", all(move("kube-system", "dns-0"), recorded(planned())),
			none, sidecar.ReasonExcludedNamespace, nothing,
		},
		{
			"host network, broken: its namespace is the node's", all(failed(), edit(func(p *repair.Pod) { p.HostNetwork = true })),
			none, sidecar.ReasonHostNetwork, nothing,
		},
		{
			"rules by its own init container", all(failed(), edit(func(p *repair.Pod) { p.Containers[0].Name = "istio-init" })),
			none, sidecar.ReasonRuleContainer, nothing,
		},
		{"no proxy", edit(func(p *repair.Pod) { p.Containers = p.Containers[:3] }), none, sidecar.ReasonNoProxy, nothing},
		{
			"proxy disabled", edit(func(p *repair.Pod) { p.Containers[3].Env["DISABLE_ENVOY"] = "true" }),
			none, sidecar.ReasonProxyDisabled, nothing,
		},
		{
			"a gateway", edit(func(p *repair.Pod) { p.Containers[3].Args = []string{"proxy", "router"} }),
			none, sidecar.ReasonProxyType, nothing,
		},
		{"opted out by label", all(failed(), label("sidecar.istio.io/inject", "false")), none, sidecar.ReasonOptedOut, nothing},
		{
			"opted out by annotation", all(failed(), annotation("sidecar.istio.io/inject", "false")),
			none, sidecar.ReasonOptedOut, nothing,
		},
		{
			"not injected, though a container has a validator's name", all(failed(), edit(func(p *repair.Pod) { p.Annotations = nil })),
			none, sidecar.ReasonNotInjected, nothing,
		},
		{"another node", all(failed(), edit(func(p *repair.Pod) { p.NodeName = "node-2" })), none, repair.ReasonOtherNode, nothing},
		{
			"no node yet", all(without(), phase(repair.PhasePending), edit(func(p *repair.Pod) { p.NodeName = "" })),
			none, repair.ReasonUnscheduled, nothing,
		},
		{
			"no node yet, where all nodes are looked after",
			all(phase(repair.PhasePending), func(p *repair.Pod, c *repair.Criteria) { p.NodeName, c.Node = "", "" }),
			none, repair.ReasonUnscheduled, nothing,
		},
	}
}

// endedPods are those whose life is over.
func endedPods() []podCase {
	const none, nothing = repair.NotOurs, repair.ModeNothing
	deleted := edit(func(p *repair.Pod) { p.DeletionTimestamp = added })
	return []podCase{
		{"being deleted, broken", all(failed(), deleted), none, repair.ReasonTerminating, nothing},
		{"being deleted, without rules", all(recorded(planned()), holds(empty()), deleted), none, repair.ReasonTerminating, nothing},
		{"completed", all(job(repair.RestartNever), phase(repair.PhaseSucceeded)), none, repair.ReasonSucceeded, nothing},
		{
			"completed, and never captured: too late", all(without(), today(planned()), holds(empty()), phase(repair.PhaseSucceeded)),
			none, repair.ReasonSucceeded, nothing,
		},
		{"failed, its validator passed", all(job(repair.RestartNever), phase(repair.PhaseFailed)), none, repair.ReasonFailed, nothing},
		{
			"evicted by its node while its validator was failing", all(failed(), phase(repair.PhaseFailed)),
			none, repair.ReasonFailed, nothing,
		},
		{
			"failed, and what failed before a restart was no end of the pod",
			all(failed(), job(repair.RestartNever), phase(repair.PhaseFailed)), none, repair.ReasonFailed, nothing,
		},
	}
}

// validatorPods are those with a validator's result.
func validatorPods() []podCase {
	const blamed, del = repair.ReasonValidator, repair.ModeDelete
	spoken := func(code int32, message string) repair.ContainerState {
		s := ended(code)
		s.Terminated.Message = message
		return s
	}
	word := func(code int32, word string) repair.ContainerState {
		s := ended(code)
		s.Terminated.Reason = word
		return s
	}
	var no repair.ContainerState
	native := edit(func(p *repair.Pod) { p.Containers[0].RestartPolicy = "Always" })
	started := func(now, last repair.ContainerState) change {
		return all(native, statuses(repair.ContainerStatus{Name: "istio-validation", State: now, Last: last, Started: true}))
	}
	member := func(proxy, validator string) change {
		return func(p *repair.Pod, c *repair.Criteria) {
			c.Mesh = sidecar.Mesh{Dialect: sidecar.Dialect{Membership: sidecar.Membership{ProxyContainer: proxy}}}
			p.Containers[0].Name, p.Containers[3].Name = validator, proxy
		}
	}
	use := func(v repair.Validator) change {
		return func(_ *repair.Pod, c *repair.Criteria) { c.Validators = []repair.Validator{v} }
	}
	exact := use(repair.Validator{Container: "istio-validation", Message: "no rules"})
	anybody := use(repair.Validator{ExitCodes: []int32{126}})
	return []podCase{
		{"passed", all(), repair.Healthy, repair.ReasonValidated, repair.ModeNothing},
		{"passed, and the pod is starting", validator(ended(0), no), repair.Healthy, repair.ReasonValidated, repair.ModeNothing},
		{"passed after a restart", validator(ended(0), ended(126)), repair.Healthy, repair.ReasonValidated, repair.ModeNothing},
		{"first end, before any restart", validator(ended(126), no), repair.Broken, blamed, del},
		{"waiting to be started again", failed(), repair.Broken, blamed, del},
		{"running again", validator(running(), ended(126)), repair.Broken, blamed, del},
		{"failed otherwise and then so", validator(ended(126), ended(1)), repair.Broken, blamed, del},
		{"failed so and then otherwise", validator(ended(1), ended(126)), repair.Suspect, repair.ReasonValidatorDied, repair.ModeReport},
		{"another exit code", validator(ended(1), no), repair.Suspect, repair.ReasonValidatorDied, repair.ModeReport},
		{"another exit code, before", validator(backOff(), ended(1)), repair.Suspect, repair.ReasonValidatorDied, repair.ModeReport},
		{"killed for its memory", validator(word(137, "OOMKilled"), no), repair.Suspect, repair.ReasonValidatorDied, repair.ModeReport},
		{"126 of a runtime that cannot execute it", validator(word(126, "ContainerCannotRun"), no), repair.Suspect, repair.ReasonValidatorDied, repair.ModeReport},
		{"128 of a runtime that cannot start it", validator(word(128, "StartError"), no), repair.Suspect, repair.ReasonValidatorDied, repair.ModeReport},
		{"not started yet", validator(repair.ContainerState{Waiting: "PodInitializing"}, no), repair.Pending, repair.ReasonValidatorPending, repair.ModeNothing},
		{"without any status yet", statuses(), repair.Pending, repair.ReasonValidatorPending, repair.ModeNothing},
		{"running for the first time", validator(running(), no), repair.Pending, repair.ReasonValidatorPending, repair.ModeNothing},
		{"running again in a new sandbox, after it had passed", validator(running(), ended(0)), repair.Pending, repair.ReasonValidatorPending, repair.ModeNothing},
		{"a native sidecar that failed", all(native, validator(ended(126), no)), repair.Broken, blamed, del},
		{"a native sidecar that runs again and isn't started", all(native, validator(running(), ended(126))), repair.Broken, blamed, del},
		{"a native sidecar that was started", started(running(), no), repair.Healthy, repair.ReasonValidated, repair.ModeNothing},
		{"a native sidecar that was started after a failure", started(running(), ended(126)), repair.Healthy, repair.ReasonValidated, repair.ModeNothing},
		{"an ordinary init container is never started for good", all(started(running(), ended(126)), edit(func(p *repair.Pod) {
			p.Containers[0].RestartPolicy = ""
		})), repair.Broken, blamed, del},
		{"Linkerd's, 95", all(member("linkerd-proxy", "linkerd-network-validator"), named("linkerd-network-validator", ended(95), no)), repair.Broken, blamed, del},
		{"Linkerd's, 126", all(member("linkerd-proxy", "linkerd-network-validator"), named("linkerd-network-validator", ended(126), no)), repair.Suspect, repair.ReasonValidatorDied, repair.ModeReport},
		{"Kuma's, 1", all(member("kuma-sidecar", "kuma-validation"), named("kuma-validation", backOff(), ended(1))), repair.Broken, blamed, del},
		{"the message asked for", all(exact, validator(spoken(3, " no rules\n"), no)), repair.Broken, blamed, del},
		{"another message", all(exact, validator(spoken(126, "no rules at all"), no)), repair.Suspect, repair.ReasonValidatorDied, repair.ModeReport},
		{"any init container, by exit code", all(anybody, named("migrate", ended(126), no)), repair.Broken, blamed, del},
		{"any init container, another exit code: no validator", all(anybody, named("migrate", ended(1), no)), repair.Unknown, repair.ReasonNotObserved, repair.ModeReport},
		{"any init container, all have passed: no validator", anybody, repair.Unknown, repair.ReasonNotObserved, repair.ModeReport},
		{"an application container of a validator's name", edit(func(p *repair.Pod) {
			p.Containers = p.Containers[1:]
			p.Containers[1].Name = "istio-validation"
			p.Statuses = []repair.ContainerStatus{{Name: "istio-validation", State: ended(126)}}
		}), repair.Unknown, repair.ReasonNotObserved, repair.ModeReport},
		{"another init container fails", all(statuses(
			repair.ContainerStatus{Name: "istio-validation", State: ended(0)}, repair.ContainerStatus{Name: "migrate", State: backOff(), Last: ended(126)},
		)), repair.Healthy, repair.ReasonValidated, repair.ModeNothing},
		{"of two validators the worse counts", all(edit(func(p *repair.Pod) { p.Containers[1].Name = "kuma-validation" }), statuses(
			repair.ContainerStatus{Name: "istio-validation", State: ended(126)}, repair.ContainerStatus{Name: "kuma-validation", State: ended(0)},
		)), repair.Broken, blamed, del},
		{"its node is lost", all(failed(), phase(repair.PhaseUnknown)), repair.Broken, blamed, del},
		{"no phase", all(failed(), phase("")), repair.Broken, blamed, del},
	}
}

// jobPods are those that are not restarted for ever.
func jobPods() []podCase {
	var no repair.ContainerState
	over := all(validator(ended(126), no), phase(repair.PhaseFailed))
	return []podCase{
		{"a Job that is restarted", all(failed(), job(repair.RestartOnFailure)), repair.Broken, repair.ReasonValidator, repair.ModeEvict},
		{"a Job that is never restarted, failed by its validator", all(over, job(repair.RestartNever)), repair.Broken, repair.ReasonValidator, repair.ModeEvict},
		{
			"the same, before its phase says so", all(over, job(repair.RestartNever), phase(repair.PhasePending)),
			repair.Broken, repair.ReasonValidator, repair.ModeEvict,
		},
		{
			"a Job at work without rules: in place, its work goes on", all(job(repair.RestartNever), without(), recorded(planned()), holds(empty())),
			repair.Broken, repair.ReasonDrift, repair.ModeRepair,
		},
		{
			"a Job at work whose namespace wasn't found: its work would be lost, and the operator has said so", all(
				job(repair.RestartNever), without(), phase(repair.PhaseRunning),
			), repair.Unknown, repair.ReasonNotObserved, repair.ModeReport,
		},
		{
			"a task of somebody else's controller: no rule names its kind", all(over, job(repair.RestartNever), owned("Workflow")),
			repair.Broken, repair.ReasonValidator, repair.ModeReport,
		},
		{
			"never restarted and unowned", all(over, job(repair.RestartNever), unowned()),
			repair.Broken, repair.ReasonValidator, repair.ModeReport,
		},
		{
			"an ended pod isn't judged by a namespace", all(over, job(repair.RestartNever), recorded(planned()), holds(planned())),
			repair.Broken, repair.ReasonValidator, repair.ModeEvict,
		},
	}
}

// recordedPods are those whose records were read, and whose namespace was not observed.
func recordedPods() []podCase {
	var no repair.ContainerState
	unrecorded := func(_ *repair.Pod, c *repair.Criteria) { c.Observed.Unrecorded = true }
	lacking := all(without(), unrecorded)
	another := all(recorded(planned()), record(func(r *repair.Record) { r.UID = "0b9c" }))
	proxy := repair.ContainerStatus{Name: "istio-proxy", State: running()}
	app := func(state repair.ContainerState) repair.ContainerStatus {
		return repair.ContainerStatus{Name: "app", State: state}
	}
	suspect := func(name string, pod change) podCase {
		return podCase{name, pod, repair.Suspect, repair.ReasonNotRecorded, repair.ModeReport}
	}
	over := func(name string, pod change) podCase {
		return podCase{name, pod, repair.Pending, repair.ReasonEnding, repair.ModeNothing}
	}
	initFailed := containers(repair.ContainerStatus{Name: "migrate", Init: true, State: ended(1)}, app(repair.ContainerState{Waiting: "PodInitializing"}))
	return []podCase{
		{"recorded", all(without(), recorded(planned())), repair.Healthy, repair.ReasonRecorded, repair.ModeNothing},
		{"recorded, and its work is over", all(without(), job(repair.RestartNever), recorded(planned()), containers(app(ended(0)))), repair.Healthy, repair.ReasonRecorded, repair.ModeNothing},
		{"recorded, and its validator died", all(validator(ended(1), no), recorded(planned())), repair.Suspect, repair.ReasonValidatorDied, repair.ModeReport},
		{"recorded, and its validator fails", all(failed(), recorded(planned())), repair.Broken, repair.ReasonValidator, repair.ModeDelete},
		suspect("not recorded", lacking),
		suspect("not recorded, one of its containers waits to be started again", all(lacking, containers(proxy, app(backOff())))),
		suspect("another pod of the name is on record", all(lacking, another)),
		suspect("not recorded, and nothing can be planned for it", all(lacking, holds(empty()))),
		suspect("a Job at work", all(lacking, job(repair.RestartNever), containers(proxy, app(ended(0))))),
		suspect("a Job that starts again", all(lacking, job(repair.RestartOnFailure), containers(app(ended(1))))),
		suspect("a container that has ended, and is always started again", all(lacking, containers(app(ended(0))))),
		suspect("a Job whose node has told nothing of its containers", all(lacking, job(repair.RestartNever), containers())),
		over("a Job that has done its work", all(lacking, job(repair.RestartOnFailure), containers(app(ended(0))))),
		over("a Job that has failed", all(lacking, job(repair.RestartNever), containers(app(ended(1))))),
		over("a Job whose init container has failed", all(lacking, job(repair.RestartNever), initFailed)),
		{"not recorded, and its validator passed", all(unrecorded), repair.Healthy, repair.ReasonValidated, repair.ModeNothing},
		{"not recorded, and its validator runs", all(unrecorded, validator(running(), no)), repair.Pending, repair.ReasonValidatorPending, repair.ModeNothing},
		{"not recorded, and its validator fails", all(unrecorded, failed()), repair.Broken, repair.ReasonValidator, repair.ModeDelete},
		{"not recorded, and without a network", all(lacking, phase(repair.PhasePending), edit(func(p *repair.Pod) { p.IPs = nil })), repair.Pending, repair.ReasonStarting, repair.ModeNothing},
		{"not recorded, and the namespace holds nothing", all(lacking, today(planned()), holds(empty())), repair.Broken, repair.ReasonNoRules, repair.ModeRepair},
		{"not recorded, and the namespace holds the rules", all(lacking, today(planned()), holds(planned())), repair.Healthy, repair.ReasonAsToday, repair.ModeNothing},
		{"not recorded, and none of ours", all(lacking, label("sidecar.istio.io/inject", "false")), repair.NotOurs, sidecar.ReasonOptedOut, repair.ModeNothing},
	}
}

// observedPods are those whose namespace was observed.
func observedPods() []podCase {
	wrongUID := func(_ *repair.Pod, c *repair.Criteria) { c.Observed.UID = "0b9c" }
	networkless := edit(func(p *repair.Pod) { p.IPs = nil })
	repaired := record(func(r *repair.Record) { r.Time = added.Add(time.Minute) })
	dormant := state(interception.State{
		Owner: "my-mesh", Objects: planned().Objects, Dormant: true,
		Deviations: []interception.Deviation{{At: "table inet my-mesh", Got: "dormant"}},
	})
	return []podCase{
		{"as recorded", all(without(), recorded(planned()), holds(planned())), repair.Healthy, repair.ReasonAsRecorded, repair.ModeNothing},
		{"rules lost", all(without(), recorded(planned()), holds(empty())), repair.Broken, repair.ReasonDrift, repair.ModeRepair},
		{"a rule added", all(without(), recorded(planned()), holds(widened())), repair.Broken, repair.ReasonDrift, repair.ModeRepair},
		{"its table is switched off", all(without(), recorded(planned()), dormant), repair.Broken, repair.ReasonDrift, repair.ModeRepair},
		{"rules lost since its validator passed", all(recorded(planned()), holds(empty())), repair.Broken, repair.ReasonDrift, repair.ModeRepair},
		{"nothing was to be captured", all(without(), recorded(empty()), holds(empty())), repair.Healthy, repair.ReasonAsRecorded, repair.ModeNothing},
		{"a rule of others first", all(without(), recorded(planned()), disturbed(planned())), repair.Suspect, repair.ReasonForeignRules, repair.ModeReport},
		{"the same, and the validator has noticed", all(failed(), recorded(planned()), disturbed(planned())), repair.Broken, repair.ReasonValidator, repair.ModeDelete},
		{"no record and no rules: it started before the plugin", all(without(), today(planned()), holds(empty())), repair.Broken, repair.ReasonNoRules, repair.ModeRepair},
		{"the same, its validator fails", all(failed(), today(planned()), holds(empty())), repair.Broken, repair.ReasonNoRules, repair.ModeRepair},
		{"no record, and the rules of today", all(without(), today(planned()), holds(planned())), repair.Healthy, repair.ReasonAsToday, repair.ModeNothing},
		{"no record, and nothing to capture", all(without(), today(empty()), holds(empty())), repair.Healthy, repair.ReasonAsToday, repair.ModeNothing},
		{"no record, and other rules: maybe those of its ADD", all(without(), today(widened()), holds(planned())), repair.Suspect, repair.ReasonNoRecord, repair.ModeReport},
		{"the same, its validator fails", all(failed(), today(widened()), holds(planned())), repair.Broken, repair.ReasonValidator, repair.ModeDelete},
		{"no record, and rules of others", all(without(), today(planned()), disturbed(planned())), repair.Suspect, repair.ReasonForeignRules, repair.ModeReport},
		{"nothing to compare with", all(without(), holds(empty())), repair.Unknown, repair.ReasonNoBaseline, repair.ModeReport},
		{"what was observed is another owner's", all(without(), recorded(planned()), state(interception.State{Owner: "other-mesh"})), repair.Unknown, repair.ReasonNoBaseline, repair.ModeReport},
		{"observed of a pod of another UID", all(without(), recorded(planned()), holds(empty()), wrongUID), repair.Unknown, repair.ReasonWrongUID, repair.ModeReport},
		{"the same, its validator fails", all(failed(), recorded(planned()), holds(planned()), wrongUID), repair.Broken, repair.ReasonValidator, repair.ModeDelete},
		{
			"observed without saying of whom", all(without(), edit(func(p *repair.Pod) { p.UID = "" }), recorded(planned()), holds(empty())),
			repair.Unknown, repair.ReasonWrongUID, repair.ModeReport,
		},
		{
			"recorded for a pod of another UID", all(without(), recorded(widened()), record(func(r *repair.Record) { r.UID = "0b9c" }), today(planned()), holds(planned())),
			repair.Healthy, repair.ReasonAsToday, repair.ModeNothing,
		},
		{
			"the same, and nobody has looked", all(without(), recorded(planned()), record(func(r *repair.Record) { r.UID = "0b9c" })),
			repair.Unknown, repair.ReasonWrongUID, repair.ModeReport,
		},
		{"nobody has looked", without(), repair.Unknown, repair.ReasonNotObserved, repair.ModeReport},
		{"nobody has looked, its node is lost", all(without(), phase(repair.PhaseUnknown)), repair.Unknown, repair.ReasonNotObserved, repair.ModeReport},
		{"no network yet", all(without(), phase(repair.PhasePending), networkless), repair.Pending, repair.ReasonStarting, repair.ModeNothing},
		{
			"observed between its sandbox and its ADD", all(without(), phase(repair.PhasePending), networkless, today(planned()), holds(empty())),
			repair.Pending, repair.ReasonStarting, repair.ModeNothing,
		},
		{
			"its sandbox is gone", all(without(), recorded(planned()), holds(empty()), condition("PodReadyToStartContainers", "False", "")),
			repair.Pending, repair.ReasonStarting, repair.ModeNothing,
		},
		{
			"its init containers run, without rules", all(without(), phase(repair.PhasePending), recorded(planned()), holds(empty())),
			repair.Broken, repair.ReasonDrift, repair.ModeRepair,
		},
		{"repaired since its validator failed", all(failed(), recorded(planned()), holds(planned()), repaired), repair.Healthy, repair.ReasonRepaired, repair.ModeNothing},
		{"its validator fails though the rules stand", all(failed(), recorded(planned()), holds(planned())), repair.Suspect, repair.ReasonContradiction, repair.ModeReport},
		{
			"the same, and when it failed isn't known", all(failed(), recorded(planned()), holds(planned()), repaired, edit(func(p *repair.Pod) {
				p.Statuses[0].Last.Terminated.FinishedAt = time.Time{}
			})), repair.Suspect, repair.ReasonContradiction, repair.ModeReport,
		},
		{"the same without a record", all(failed(), today(planned()), holds(planned())), repair.Suspect, repair.ReasonContradiction, repair.ModeReport},
		{
			"its validator died, and the rules stand", all(validator(ended(1), repair.ContainerState{}), recorded(planned()), holds(planned())),
			repair.Healthy, repair.ReasonAsRecorded, repair.ModeNothing,
		},
	}
}

// changedPods are those for which something else would be planned now.
func changedPods() []podCase {
	older := record(func(r *repair.Record) { r.Planner = "v1.0.0" })
	optedOut := label("sidecar.istio.io/inject", "false")
	return []podCase{
		{"exclusions widened since", all(recorded(planned()), today(widened()), holds(planned())), repair.Changed, repair.ReasonAnnotationsChanged, repair.ModeReport},
		{"exclusions narrowed since", all(recorded(widened()), today(planned()), holds(widened())), repair.Changed, repair.ReasonAnnotationsChanged, repair.ModeReport},
		{"an exclusion has another value", all(recorded(widened()), today(plan("9090,9091", "output.all")), holds(widened())), repair.Changed, repair.ReasonAnnotationsChanged, repair.ModeReport},
		{"the text has changed, not what is planned", all(recorded(widened()), today(plan("9090,", "output.rest")), holds(widened())), repair.Healthy, repair.ReasonAsRecorded, repair.ModeNothing},
		{"widened, and its validator passed", all(recorded(planned()), today(widened())), repair.Changed, repair.ReasonAnnotationsChanged, repair.ModeReport},
		{"widened, and lost its rules: healed as recorded", all(recorded(planned()), today(widened()), holds(empty())), repair.Broken, repair.ReasonDrift, repair.ModeRepair},
		{"widened, and somebody followed", all(recorded(planned()), today(widened()), holds(widened())), repair.Broken, repair.ReasonDrift, repair.ModeRepair},
		{"widened, and nobody has looked", all(without(), recorded(planned()), today(widened())), repair.Changed, repair.ReasonAnnotationsChanged, repair.ModeReport},
		{"another version plans otherwise", all(recorded(planned()), older, today(replanned()), holds(planned())), repair.Outdated, repair.ReasonPlannerNewer, repair.ModeReport},
		{"another version plans the same", all(recorded(planned()), older, today(planned()), holds(planned())), repair.Healthy, repair.ReasonAsRecorded, repair.ModeNothing},
		{"another version, and what it plans isn't known", all(recorded(planned()), older, holds(planned())), repair.Healthy, repair.ReasonAsRecorded, repair.ModeNothing},
		{"another version, and annotations widened", all(recorded(planned()), older, today(widened()), holds(planned())), repair.Changed, repair.ReasonAnnotationsChanged, repair.ModeReport},
		{"the same version plans otherwise for the same pod", all(recorded(planned()), today(replanned()), holds(planned())), repair.Changed, repair.ReasonPlanChanged, repair.ModeReport},
		{"opted out since", all(recorded(planned()), holds(planned()), optedOut), repair.Changed, repair.ReasonAnnotationsChanged, repair.ModeReport},
		{"opted out since, and lost its rules", all(recorded(planned()), holds(empty()), optedOut), repair.Broken, repair.ReasonDrift, repair.ModeRepair},
		{
			"lost the injector's annotation, and its rules", all(recorded(planned()), holds(empty()), edit(func(p *repair.Pod) { p.Annotations = nil })),
			repair.Broken, repair.ReasonDrift, repair.ModeRepair,
		},
		{
			"opted out, and the record is another pod's", all(recorded(planned()), record(func(r *repair.Record) { r.UID = "0b9c" }), optedOut),
			repair.NotOurs, sidecar.ReasonOptedOut, repair.ModeNothing,
		},
	}
}

// actedPods are broken pods to which some modes cannot be applied.
func actedPods() []podCase {
	broken := func(changes ...change) change { return all(failed(), all(changes...)) }
	in := func(namespace string) change { return edit(func(p *repair.Pod) { p.Namespace = namespace }) }
	row := func(name string, do repair.Mode, pod change) podCase {
		return podCase{name, pod, repair.Broken, repair.ReasonValidator, do}
	}
	return []podCase{
		row("of a StatefulSet", repair.ModeDelete, broken(owned("StatefulSet"))),
		row("of a DaemonSet", repair.ModeDelete, broken(owned("DaemonSet"))),
		row("without an owner", repair.ModeReport, broken(unowned())),
		row("with an owner that doesn't make it anew", repair.ModeReport, broken(edit(func(p *repair.Pod) { p.Owners[0].Controller = false }))),
		row("a static pod, by its owner", repair.ModeReport, broken(owned("Node"))),
		row("a static pod, by its annotation", repair.ModeReport, broken(annotation("kubernetes.io/config.mirror", "abc"))),
		row("being evicted already", repair.ModeReport, broken(condition("DisruptionTarget", "True", "EvictionByEvictionAPI"))),
		row("an eviction that was called off", repair.ModeDelete, broken(condition("DisruptionTarget", "False", ""))),
		row("without a resourceVersion", repair.ModeReport, broken(edit(func(p *repair.Pod) { p.ResourceVersion = "" }))),
		row("without a UID", repair.ModeReport, broken(edit(func(p *repair.Pod) { p.UID = "" }))),
		row("in a namespace that is left alone", repair.ModeNothing, broken(in("quiet"))),
		row("in a namespace that is marked", repair.ModeLabel, broken(in("marked"))),
		row("marked already", repair.ModeNothing, broken(in("marked"), label("cni.istio.io/uninitialized", "true"))),
		row("marked already, otherwise", repair.ModeNothing, broken(in("marked"), label("cni.istio.io/uninitialized", ""))),
	}
}
