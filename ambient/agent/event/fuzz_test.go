// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"testing"
)

// FuzzRequests parses any body as each kind of request, and as an answer. A pod that parses
// survives a round trip.
func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		`{"namespace":"shop","name":"web-0","uid":"7f0b","container":"3e1c","addresses":["10.244.1.6","fd00::6"],"timeout":"4.5s"}`,
		`{"Netns":"/run/netns/a","PodName":"p","PodNamespace":"n","IPs":[{"Address":{"IP":"10.0.0.2","Mask":"////AA=="}}]}`,
		`{"all":true,"timeout":"60s"}`, `{"held":true}`, `{"error":{"code":"unfinished","message":"no"}}`, `{"capture":true,"reason":"selected"}`, `null`, `{`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if pod, timeout, err := parseRequest(body); err == nil {
			text, err := encodeRequest(context.Background(), pod)
			again, _, failed := parseRequest(text)
			if err != nil || failed != nil || !reflect.DeepEqual(again, pod) && len(pod.Addresses) > 0 || again.Container != pod.Container || timeout < 0 {
				t.Errorf("%+v becomes %+v: %v, %v, timeout %s", pod, again, err, failed, timeout)
			}
		}
		if pod, path, err := parseIstio(body); err == nil && (pod.Name == "" || path == "") {
			t.Errorf("Istio's request parses as %+v in %q", pod, path)
		}
		if of, _, err := parseWithdrawal(body); err == nil && of.UID == "" && (of.Name == "") != (of.Namespace == "") {
			t.Errorf("a withdrawal of %+v parses", of)
		}
		_, _ = parseDeparture(http.StatusOK, bytes.NewReader(body))
		if d, err := parseAnswer(http.StatusOK, body); err == nil && d.Reason == "" {
			t.Errorf("an answer without a reason parses: %+v", d)
		}
	})
}
