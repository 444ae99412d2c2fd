// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Inquiry is a request for one pod that the API server answered, whatever the answer.
type Inquiry struct {
	// UserAgent is the client's name for itself.
	UserAgent string `json:"userAgent"`
	// Pod is the requested pod.
	Pod struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"objectRef"`
}

// auditPolicy makes the API server log requests for single pods, with their clients, and nothing
// else. See https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, verbs: [get], resources: [{group: "", resources: [pods]}]}
  - {level: None}
`

// auditArguments writes the policy and returns the API server's arguments for it.
func auditArguments(directory, logs string) ([]string, error) {
	policy := filepath.Join(directory, "audit.yaml")
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog(logs)}, os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

func auditLog(logs string) string { return filepath.Join(logs, "audit.log") }

// Inquiries returns all requests for single pods so far.
func (c *Cluster) Inquiries() ([]Inquiry, error) {
	text, err := os.ReadFile(auditLog(c.Logs()))
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(text, '\n') + 1 // the last line may be incomplete
	decoder := json.NewDecoder(bytes.NewReader(text[:end]))
	var all []Inquiry
	for {
		var one Inquiry
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the API server's audit log: %w", err)
		}
		all = append(all, one)
	}
}
