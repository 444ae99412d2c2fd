// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// sourceFunc is a source.
type sourceFunc func(ctx context.Context, ref podsource.Ref) (interception.Pod, error)

func (f sourceFunc) Pod(ctx context.Context, ref podsource.Ref) (interception.Pod, error) {
	return f(ctx, ref)
}

func failing(err error) podsource.Source {
	return sourceFunc(func(context.Context, podsource.Ref) (interception.Pod, error) { return interception.Pod{}, err })
}

func knowing(_ context.Context, ref podsource.Ref) (interception.Pod, error) {
	return interception.Pod{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}, nil
}

func hanging(ctx context.Context, ref podsource.Ref) (interception.Pod, error) {
	<-ctx.Done()
	return interception.Pod{}, &podsource.Error{Kind: podsource.ErrTimeout, Source: "node agent", Pod: ref, Cause: context.Cause(ctx)}
}

func TestChainTakesTheFirstAnswer(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	never := sourceFunc(func(context.Context, podsource.Ref) (interception.Pod, error) {
		t.Error("a source after the answer was asked")
		return interception.Pod{}, nil
	})
	chain := podsource.Chain{Links: []podsource.Link{
		{Name: "a", Source: failing(broken)}, {Name: "b", Source: sourceFunc(knowing)}, {Name: "c", Source: never},
	}}
	answer, err := chain.Ask(t.Context(), web)
	if err != nil {
		t.Fatal(err)
	}
	if pod, err := chain.Pod(t.Context(), web); err != nil || pod.UID != uid {
		t.Errorf("as a source it has %+v, %v", pod, err)
	}
	if answer.Source != "b" || answer.Pod.UID != uid || len(answer.Failures) != 1 ||
		answer.Failures[0].Error() != "a: broken" || !errors.Is(answer.Failures[0], broken) {
		t.Errorf("got %+v", answer)
	}
}

func TestChainSaysHowEachSourceFailed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		links []podsource.Link
		want  string
	}{
		"none": {nil, "pod shop/web-0: there is no source to ask; give the plugin a source that knows the pod: the node agent, or the API server"},
		"of all kinds": {
			[]podsource.Link{
				{Name: "agent", Source: podsource.Agent{RunDir: "/nowhere"}},
				{Name: "api-server", Source: podsource.APIServer{Kubeconfig: "/nowhere/kubeconfig"}},
				{Name: "mine", Source: failing(errors.New("broken"))},
			},
			"pod shop/web-0: no source knows it: " +
				"node agent cannot be reached (unix:/nowhere/agent.sock): connect: no such file or directory; " +
				"kubeconfig cannot be used: open /nowhere/kubeconfig: no such file or directory; mine: broken; " +
				"one of these is enough: see whether the node agent's pod runs on this node, and has its socket in this directory; " +
				"the node agent writes it: see whether its pod runs on this node and installs into this directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := podsource.Chain{Links: test.links}.Ask(t.Context(), web)
			var failure *podsource.ChainError
			if !errors.As(err, &failure) || failure.Pod != web || len(failure.Failures) != len(test.links) {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Error(diff)
			}
			if len(test.links) > 0 && (!errors.Is(err, podsource.ErrUnreachable) || !errors.Is(err, podsource.ErrKubeconfig)) {
				t.Error("the kinds cannot be told")
			}
		})
	}
}

// TestChainSharesItsTime has sources that take all that they get.
func TestChainSharesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var ends []string
		slow := sourceFunc(func(ctx context.Context, ref podsource.Ref) (interception.Pod, error) {
			pod, err := hanging(ctx, ref)
			ends = append(ends, fmt.Sprint(time.Since(began)))
			return pod, err
		})
		_, err := podsource.Chain{Timeout: 10 * time.Second, Links: []podsource.Link{
			{Name: "own time", Source: slow, Timeout: time.Second},
			{Name: "a third", Source: slow},
			{Name: "half", Source: slow},
			{Name: "the rest", Source: slow},
		}}.Ask(t.Context(), web)
		if !errors.Is(err, podsource.ErrTimeout) {
			t.Errorf("got %v", err)
		}
		if diff := cmp.Diff([]string{"1s", "4s", "7s", "10s"}, ends); diff != "" {
			t.Error(diff)
		}
	})
}

func TestChainHasTimeWithoutBeingGivenAny(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := podsource.Chain{Links: []podsource.Link{{Name: "a", Source: sourceFunc(hanging)}}}.Ask(t.Context(), web)
		const want = "pod shop/web-0: no source knows it: node agent did not answer in time: no answer within 30s for all sources: " +
			"context deadline exceeded; see the node agent's log"
		if took := time.Since(began); took != 30*time.Second || err.Error() != want {
			t.Errorf("got %v after %v", err, took)
		}
	})
}

func TestChainStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	first := sourceFunc(func(context.Context, podsource.Ref) (interception.Pod, error) {
		cancel(errors.New("the runtime went away"))
		return interception.Pod{}, errors.New("broken")
	})
	never := sourceFunc(func(context.Context, podsource.Ref) (interception.Pod, error) {
		t.Error("a source was asked when time was over")
		return interception.Pod{}, nil
	})
	_, err := podsource.Chain{Links: []podsource.Link{{Name: "a", Source: first}, {Name: "b", Source: never}}}.Ask(ctx, web)
	var failure *podsource.ChainError
	if !errors.As(err, &failure) || failure.Problem() != "pod shop/web-0: no source knows it: a: broken; b: not asked: the runtime went away" {
		t.Errorf("got %v", err)
	}
}

// What a program forgot to give is said as that, and no file of the working directory is taken in
// its place.
func TestSourcesThatAreNotGiven(t *testing.T) {
	t.Parallel()
	_, err := podsource.Chain{Links: []podsource.Link{{Name: "agent"}}}.Ask(t.Context(), web)
	if err == nil || !strings.Contains(err.Error(), "agent: no source is given") {
		t.Error(err)
	}
	_, err = podsource.Agent{}.Pod(t.Context(), web)
	if !errors.Is(err, podsource.ErrUnreachable) || !strings.Contains(err.Error(), "the agent's run directory is not given") {
		t.Error(err)
	}
}
